"""How a demonstration's customers put their requests."""

from __future__ import annotations

#: What a request may leave to be found out (see `errands.Request.unsaid`); repeated entries are more frequent.
UNSAID: dict[str, tuple[str, ...]] = {
    "cancel": ("by item", "by item", "order id"),
    "refund": ("by item", "order id"),
    "address": ("address",),
    "quantity": ("quantity",),
}

#: Other ways to say "order {id}".
REFERENCES = ("{id}", "my order {id}", "the order {id}", "order number {id}")
OPENINGS = ("Hello.", "Good morning.", "Hi there.")

#: (request, what is unsaid) → ways to put it. {id} is the order, {other} the second one of a pair.
PHRASES: dict[tuple[str, str], tuple[str, ...]] = {
    ("cancel", ""): (
        "Please cancel order {id}.",
        "I want to cancel order {id}.",
        "Can you cancel my {item}, order {id}?",
        "Could you cancel {id} for me?",
        "Cancel order {id}, please.",
        "I no longer need the {item}. Please cancel {id}.",
        "I changed my mind about the {item}. Please cancel order {id}.",
        "Order {id} was a mistake. Please cancel it.",
        "The {item} is not needed any more, please cancel order {id}.",
    ),
    ("cancel", "by item"): (
        "I am customer {customer}. Please cancel my {item}.",
        "My customer id is {customer}. I want to cancel the {item}.",
        "Customer {customer} here. Could you cancel my {item}?",
    ),
    ("cancel", "order id"): (
        "I want to cancel an order.",
        "Please cancel my order.",
        "Can you cancel an order for me?",
    ),
    ("quantity", ""): (
        "Please change order {id} to {quantity} pieces.",
        "Make it {quantity} pieces in order {id}, please.",
        "I need {quantity} of the {item} in order {id}.",
        "Set the quantity of order {id} to {quantity}, please.",
        "Can I have {quantity} pieces in order {id}?",
        "I made a mistake: order {id} should be {quantity} pieces.",
    ),
    ("quantity", "quantity"): (
        "Please change the quantity of order {id}.",
        "I want more pieces in order {id}.",
        "I need another quantity in order {id}.",
    ),
    ("address", ""): (
        "Please send order {id} to {address}.",
        "Change the address of order {id} to {address}, please.",
        "I moved. Order {id} should go to {address}.",
        "Can you deliver the {item}, order {id}, to {address}?",
        "The address of order {id} is wrong. It is {address}.",
        "Deliver {id} to {address}, please.",
    ),
    ("address", "address"): (
        "Please change the address of order {id}.",
        "I moved. Please change the address of order {id}.",
        "The address of order {id} is wrong. Please change it.",
    ),
    ("home", ""): (
        "Please send order {id} to my home address.",
        "Can you deliver the {item}, order {id}, to my home address?",
        "Order {id} should go to my home address, please.",
    ),
    ("note", ""): (
        "Please add the note {note} to order {id}.",
        "Order {id} needs a note. Please add the note {note}.",
        "Can you add the note {note} to order {id}?",
        "Order {id} is a present. Please add the note {note}.",
        "Please add a note for the driver, {note}, to order {id}.",
        "{wish} Please add that note to order {id}.",
        "{wish} Please write that on order {id}.",
    ),
    ("refund", ""): (
        "Please refund order {id}.",
        "I want my money back for order {id}.",
        "Can I get a full refund for the {item}, order {id}?",
        "The {item} is not for me. Please refund {id}.",
        "I sent the {item} back. Please refund order {id}.",
        "Refund order {id}, please.",
        "I would like a refund of the whole amount of order {id}.",
        "Could you refund {id} for me?",
    ),
    ("refund", "by item"): (
        "I am customer {customer}. Please refund my {item}.",
        "My customer id is {customer}. I want my money back for the {item}.",
    ),
    ("refund", "order id"): ("I want my money back for an order.", "Please refund my order.", "I want a refund."),
    ("refund part", ""): (
        "Please refund {amount} dollars of order {id}.",
        "Refund {amount} dollars for the {item}, order {id}, please.",
        "I saw the {item} for less. Please refund {amount} dollars of {id}.",
        "I want {amount} dollars back for order {id}.",
    ),
    ("complaint", ""): (
        "Order {id} {trouble}. I want to complain.",
        "The {item} {trouble}. I want to complain about order {id}.",
        "My {item} {trouble}, order {id}. I want to complain.",
        "I have a complaint: order {id} {trouble}.",
    ),
    ("question", ""): (
        "What is the status of order {id}?",
        "How much did I pay for order {id}?",
        "Where is order {id} now?",
        "What is the amount of order {id}?",
    ),
    ("quantity and address", ""): (
        "Please change order {id} to {quantity} pieces and send it to {address}.",
        "Order {id} should be {quantity} pieces and go to {address}.",
    ),
    ("two addresses", ""): (
        "Please send orders {id} and {other} to {address}.",
        "I moved. Orders {id} and {other} should go to {address}.",
    ),
    ("cancel and refund", ""): (
        "Please cancel order {id} and refund order {other}.",
        "I want to cancel order {id} and get my money back for order {other}.",
    ),
    ("two cancellations", ""): (
        "Please cancel orders {id} and {other}.",
        "I want to cancel orders {id} and {other}.",
    ),
}

#: The same notes as wishes.
WISHES: dict[str, tuple[str, ...]] = {
    "leave at door": ("The driver can leave it at the door.", "Please leave it at my door."),
    "call before delivery": ("The driver should call before delivery.", "Please call me before delivery."),
    "gift wrap": ("I want gift wrap.", "It needs gift wrap."),
    "no invoice": ("There should be no invoice in the box.", "I want no invoice with it."),
}

#: What is wrong with an order, by the reason under which it is escalated.
TROUBLES: dict[str, tuple[str, ...]] = {
    "late": ("is late", "is very late", "is too late"),
    "damaged": ("arrived damaged", "is damaged", "came damaged"),
    "wrong item": ("is the wrong item", "had the wrong item", "came with the wrong item"),
    "lost": ("is lost", "was lost", "got lost"),
}
