"""A price list with round numbers, as a user would write it."""

PRICE_LIST = """
as_of = 2026-01-02
source = "a contract"
currency = "EUR"
region = "West Europe"
[bandwidth]
per_gb = 0.5
[tiers.basic]
per_million = 2
[tiers.standard]
base_per_hour = 0.25
[[tiers.standard.bands]]
up_to_million = 1
per_million = 0
[[tiers.standard.bands]]
up_to_million = 3
per_million = 10
[[tiers.standard.bands]]
per_million = 1
[tiers.premium]
unit_per_hour = 3
geo_replication_per_gb = 0.1
"""
