"""The order desk: ten tools over customers and orders, with short flat results and ids from fixed ranges.

It is small on purpose: the tiny practice policy has to learn it. Every value comes from a vocabulary below, so that a
small tokenizer can hold them all. Whoever makes further worlds (demonstrations, for instance) draws from the same
vocabularies and leaves out the worlds of the tasks: compare `stateward.outcome.fingerprint` of the configuration, or
refuse every world that holds an order with the same id, item, quantity, price and status as a task's.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from stateward.practice.desk import Desk, Refusal, tool

Status = Literal["processing", "shipped", "delivered", "cancelled"]
Note = Literal["leave at door", "call before delivery", "gift wrap", "no invoice"]
Reason = Literal["late", "damaged", "wrong item", "lost"]

STATUSES: tuple[str, ...] = get_args(Status)
NOTES: tuple[str, ...] = get_args(Note)
REASONS: tuple[str, ...] = get_args(Reason)
ORDER_IDS = tuple(f"ORD-{n}" for n in range(1000, 1200))
CUSTOMER_IDS = tuple(f"C-{n}" for n in range(100, 200))
#: What an order can cost in all, and what can be refunded: whole dollars in steps of five.
AMOUNTS = tuple(range(5, 501, 5))
QUANTITIES = tuple(range(1, 10))
ITEMS = (
    "backpack", "bench", "blanket", "blender", "bookcase", "camera", "candle", "chair", "clock", "desk",
    "drill", "fan", "grill", "hammock", "heater", "helmet", "jacket", "kettle", "keyboard", "ladder",
    "lamp", "mattress", "mirror", "monitor", "pillow", "printer", "radio", "rug", "stroller", "tent",
)  # fmt: skip
STREETS = (
    "Ash Road", "Bay Street", "Birch Lane", "Cedar Avenue", "Church Road", "Elm Street", "Field Lane", "Forest Road",
    "Garden Street", "Grove Lane", "Hill Road", "King Street", "Lake Avenue", "Maple Street", "Mill Lane", "Oak Lane",
    "Park Avenue", "Pine Street", "River Road", "Station Road",
)  # fmt: skip
FIRST_NAMES = (
    "Ada", "Ben", "Carla", "David", "Elena", "Felix", "Grace", "Hugo", "Ines", "Jonas",
    "Kira", "Leo", "Mia", "Noah", "Olga", "Paul", "Rosa", "Simon", "Tara", "Victor",
)  # fmt: skip
LAST_NAMES = (
    "Adams", "Berg", "Costa", "Dunn", "Evans", "Ferrer", "Grant", "Hayes", "Ito", "Jensen",
    "Klein", "Lopez", "Moore", "Novak", "Olsen", "Park", "Quinn", "Reed", "Silva", "Weber",
)  # fmt: skip
#: House numbers 1 to 99 in front of a street make an address.
HOUSE_NUMBERS = tuple(range(1, 100))


class OrderDesk(Desk):
    """Configuration: ``customers`` (id, name, address) and ``orders`` (id, customer_id, item, quantity, price, status,
    address; optional refunded, note, escalated, approval, and `manager`, the manager's answer if asked: approved or
    denied). `price` is for one piece, in dollars."""

    ddl = """
        CREATE TABLE customers (
            id TEXT PRIMARY KEY CHECK (id GLOB 'C-[1][0-9][0-9]'),
            name TEXT NOT NULL,
            address TEXT NOT NULL
        );
        CREATE TABLE orders (
            id TEXT PRIMARY KEY CHECK (id GLOB 'ORD-[1][0-1][0-9][0-9]'),
            customer_id TEXT NOT NULL REFERENCES customers (id),
            item TEXT NOT NULL,
            quantity INTEGER NOT NULL CHECK (quantity > 0),
            price INTEGER NOT NULL CHECK (price > 0),
            status TEXT NOT NULL CHECK (status IN ('processing', 'shipped', 'delivered', 'cancelled')),
            address TEXT NOT NULL,
            refunded INTEGER NOT NULL DEFAULT 0,
            note TEXT NOT NULL DEFAULT '',
            escalated TEXT NOT NULL DEFAULT '',
            approval TEXT NOT NULL DEFAULT '' CHECK (approval IN ('', 'approved', 'denied')),
            manager TEXT NOT NULL DEFAULT 'approved' CHECK (manager IN ('approved', 'denied'))
        );
    """

    def _order(self, order_id: str) -> dict[str, Any]:
        order = self.database.row("SELECT * FROM orders WHERE id = ?", order_id)
        if order is None:
            raise Refusal(f"no order {order_id}")
        return order

    @tool
    def get_order(self, order_id: str) -> dict[str, Any]:
        """Show one order."""
        order = self._order(order_id)
        return {
            "order_id": order["id"],
            "customer_id": order["customer_id"],
            "item": order["item"],
            "quantity": order["quantity"],
            "amount": order["quantity"] * order["price"],
            "status": order["status"],
            "refunded": order["refunded"],
            "address": order["address"],
        }

    @tool
    def list_orders(self, customer_id: str) -> dict[str, Any]:
        """List a customer's orders: order id and item."""
        self.get_customer(customer_id)
        rows = self.database.rows("SELECT id, item FROM orders WHERE customer_id = ? ORDER BY id", customer_id)
        return {row["id"]: row["item"] for row in rows}

    @tool
    def get_customer(self, customer_id: str) -> dict[str, Any]:
        """Show a customer's name and home address."""
        row = self.database.row("SELECT name, address FROM customers WHERE id = ?", customer_id)
        if row is None:
            raise Refusal(f"no customer {customer_id}")
        return {"customer_id": customer_id, **row}

    @tool
    def cancel_order(self, order_id: str) -> dict[str, Any]:
        """Cancel an order."""
        if self._order(order_id)["status"] == "cancelled":
            raise Refusal(f"{order_id} is already cancelled")
        self.database.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", order_id)
        return {"order_id": order_id, "status": "cancelled"}

    @tool
    def refund_order(self, order_id: str, amount: int) -> dict[str, Any]:
        """Refund an amount in dollars."""
        self._order(order_id)
        if amount <= 0:
            raise Refusal("the amount must be above 0")
        self.database.execute("UPDATE orders SET refunded = refunded + ? WHERE id = ?", amount, order_id)
        return {"order_id": order_id, "refunded": amount}

    @tool
    def change_quantity(self, order_id: str, quantity: int) -> dict[str, Any]:
        """Set the number of pieces."""
        order = self._order(order_id)
        if quantity <= 0:
            raise Refusal("the quantity must be above 0")
        self.database.execute("UPDATE orders SET quantity = ? WHERE id = ?", quantity, order_id)
        return {"order_id": order_id, "quantity": quantity, "amount": quantity * order["price"]}

    @tool
    def change_address(self, order_id: str, address: str) -> dict[str, Any]:
        """Set the delivery address."""
        self._order(order_id)
        self.database.execute("UPDATE orders SET address = ? WHERE id = ?", address.strip(), order_id)
        return {"order_id": order_id, "address": address.strip()}

    @tool
    def request_approval(self, order_id: str) -> dict[str, Any]:
        """Ask the manager to approve a refund: approved or denied."""
        answer = self._order(order_id)["manager"]
        self.database.execute("UPDATE orders SET approval = ? WHERE id = ?", answer, order_id)
        return {"order_id": order_id, "approval": answer}

    @tool
    def add_note(self, order_id: str, note: Note) -> dict[str, Any]:
        """Add a delivery note."""
        self._order(order_id)
        if note not in NOTES:
            raise Refusal(f"the notes are: {', '.join(NOTES)}")
        self.database.execute("UPDATE orders SET note = ? WHERE id = ?", note, order_id)
        return {"order_id": order_id, "note": note}

    @tool
    def escalate_order(self, order_id: str, reason: Reason) -> dict[str, Any]:
        """Hand a complaint to the manager."""
        self._order(order_id)
        if reason not in REASONS:
            raise Refusal(f"the reasons are: {', '.join(REASONS)}")
        self.database.execute("UPDATE orders SET escalated = ? WHERE id = ?", reason, order_id)
        return {"order_id": order_id, "escalated": reason}
