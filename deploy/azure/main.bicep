// Two namespaces of a pairing in two regions, with their entities, and roles for its users.
//
//   az deployment group create --resource-group GROUP --template-file main.bicep \
//     --parameters primaryName=contoso secondaryName=contoso-backup secondaryLocation=northeurope
//
// The backlog queues are created here, so that senders need no right to manage the secondary: pair
// with create_backlog=False. docs/reference/rights.md lists which right is for what.

@description('Name of the primary namespace. It is part of the paths of the backlog queues.')
@minLength(6)
@maxLength(50)
param primaryName string

@description('Name of the secondary namespace.')
@minLength(6)
@maxLength(50)
param secondaryName string

@description('Region of the primary.')
param primaryLocation string = resourceGroup().location

@description('Region of the secondary. Choose another one, so that an outage does not affect both.')
param secondaryLocation string

@description('Tier of both namespaces. Basic has no duplicate detection.')
@allowed([
  'Standard'
  'Premium'
])
param tier string = 'Standard'

@description('Queues that paired senders send to.')
param queueNames array = [
  'orders'
]

@description('Topics that paired senders send to. Their subscriptions are yours to create.')
param topicNames array = []

@description('Number of backlog queues: backlog_queue_count of the senders.')
@minValue(1)
@maxValue(100)
param backlogQueueCount int = 10

@description('Window of duplicate detection. It must be longer than an outage and its drain together.')
param duplicateWindow string = 'P1D'

@description('Refuse shared access keys, and accept Microsoft Entra ID only.')
param disableKeys bool = true

@description('Object ids of identities that send.')
param senders array = []

@description('Object ids of identities that send with failback="after-drain", which reads the backlog.')
param orderedSenders array = []

@description('Object ids of identities that receive from the primary.')
param receivers array = []

@description('Object ids of the identities of syphons.')
param syphons array = []

@description('Object ids of operators, and of the identity of the console.')
param operators array = []

@description('Type of the operators: a group of people, or the identity of a console.')
@allowed([
  'Group'
  'ServicePrincipal'
  'User'
])
param operatorType string = 'Group'

var dataSender = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39')
var dataReceiver = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0')
var dataOwner = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '090c5cfd-751d-490a-894a-3ce6f1109419')

resource primary 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: primaryName
  location: primaryLocation
  sku: {
    name: tier
    tier: tier
  }
  properties: {
    disableLocalAuth: disableKeys
    minimumTlsVersion: '1.2'
  }
}

resource secondary 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: secondaryName
  location: secondaryLocation
  sku: {
    name: tier
    tier: tier
  }
  properties: {
    disableLocalAuth: disableKeys
    minimumTlsVersion: '1.2'
  }
}

resource queues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = [for queueName in queueNames: {
  parent: primary
  name: queueName
  properties: {
    // It can only be enabled when an entity is created.
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}]

resource topics 'Microsoft.ServiceBus/namespaces/topics@2026-01-01' = [for topicName in topicNames: {
  parent: primary
  name: topicName
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateWindow
  }
}]

// The settings with which a pairing creates them. Resource Manager writes ~ for / in names.
resource backlog 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = [for number in range(0, backlogQueueCount): {
  parent: secondary
  name: '${primaryName}~x-servicebus-transfer~${number}'
  properties: {
    maxSizeInMegabytes: 5120
    maxDeliveryCount: 2147483647
    lockDuration: 'PT1M'
    deadLetteringOnMessageExpiration: true
    enableBatchedOperations: true
  }
}]

resource sendersInPrimary 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in concat(senders, orderedSenders): {
  scope: primary
  name: guid(primary.id, principal, dataSender)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}]

resource sendersInSecondary 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in concat(senders, orderedSenders): {
  scope: secondary
  name: guid(secondary.id, principal, dataSender)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}]

resource orderedSendersRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in orderedSenders: {
  scope: secondary
  name: guid(secondary.id, principal, dataReceiver)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}]

resource receiversInPrimary 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in receivers: {
  scope: primary
  name: guid(primary.id, principal, dataReceiver)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}]

resource syphonsDeliver 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in syphons: {
  scope: primary
  name: guid(primary.id, principal, dataSender)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}]

resource syphonsDrain 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in syphons: {
  scope: secondary
  name: guid(secondary.id, principal, dataReceiver)
  properties: {
    principalId: principal
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}]

resource operatorsRedrive 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in operators: {
  scope: primary
  name: guid(primary.id, principal, dataSender)
  properties: {
    principalId: principal
    principalType: operatorType
    roleDefinitionId: dataSender
  }
}]

// Counts and the list of queues need the right to manage the secondary, which holds nothing but the
// backlog.
resource operatorsInSecondary 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in operators: {
  scope: secondary
  name: guid(secondary.id, principal, dataOwner)
  properties: {
    principalId: principal
    principalType: operatorType
    roleDefinitionId: dataOwner
  }
}]

output primaryHost string = '${primaryName}.servicebus.windows.net'
output secondaryHost string = '${secondaryName}.servicebus.windows.net'
