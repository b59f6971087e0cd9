"""Orders: confirmed or rejected, with a reminder to pay."""

from datetime import datetime, timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSender

ORDERS, REMINDERS = "orders", "reminders"
PAYMENT_DUE = timedelta(hours=24)


def place_order(sender: ServiceBusSender, order: str) -> None:
    sender.send_messages(ServiceBusMessage(order, message_id=order))


def confirm_order(receiver: ServiceBusReceiver, stock: set[str]) -> str | None:
    """Take the next order. An order for something that is not in stock is dead-lettered."""
    for message in receiver.receive_messages(1, max_wait_time=5):
        if str(message) in stock:
            receiver.complete_message(message)
            return str(message)
        receiver.dead_letter_message(message, reason="not in stock")
    return None


def remind(sender: ServiceBusSender, order: str, ordered_at: datetime) -> None:
    """Schedule the reminder to pay for an order."""
    sender.schedule_messages(ServiceBusMessage(order), ordered_at + PAYMENT_DUE)
