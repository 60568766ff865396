"""The desks alone: strict configurations, atomic tools, a state that crosses a fork."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest

from stateward.practice.clinic import ClinicDesk
from stateward.practice.desk import Desk
from stateward.practice.library import LibraryDesk
from stateward.practice.orders import AMOUNTS, CUSTOMER_IDS, ITEMS, NOTES, ORDER_IDS, REASONS, STREETS, OrderDesk
from stateward.tasks.task import Task

WORLD: dict[str, list[dict[str, Any]]] = {
    "customers": [{"id": "C-117", "name": "Mia Park", "address": "12 Elm Street"}],
    "orders": [
        {
            "id": "ORD-1042",
            "customer_id": "C-117",
            "item": "lamp",
            "quantity": 2,
            "price": 40,
            "status": "processing",
            "address": "12 Elm Street",
        }
    ],
}


def call(desk: Desk, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = json.loads(desk.call(tool, arguments))
    assert isinstance(result, dict)
    return result


def changed(**row: Any) -> dict[str, list[dict[str, Any]]]:
    world = copy.deepcopy(WORLD)
    world["orders"][0] |= row
    return world


def test_init_replaces_everything_and_returns_the_state() -> None:
    desk = OrderDesk(changed(id="ORD-1199"))
    result = desk.init(WORLD)
    assert result == {"status": "ok", "initial": desk.state()}
    assert list(desk.state()["orders"]) == ["ORD-1042"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"order": []}, "unknown tables"),
        (changed(colour="red"), "unknown columns"),
        (changed(status="lost"), "CHECK constraint"),
        (changed(customer_id="C-118"), "FOREIGN KEY"),
        (changed(id="ORD-9"), "CHECK constraint"),
        ({"customers": [{"id": "C-117", "name": "Mia Park"}]}, "NOT NULL"),
        ({"customers": WORLD["customers"] * 2}, "UNIQUE"),
    ],
)
def test_a_wrong_configuration_is_refused_and_changes_nothing(config: dict[str, Any], message: str) -> None:
    desk = OrderDesk(WORLD)
    before = desk.state()
    with pytest.raises(ValueError, match=message):
        desk.init(config)
    assert desk.state() == before


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_order", {"order_id": "ORD-1043"}),
        ("list_orders", {"customer_id": "C-118"}),
        ("refund_order", {"order_id": "ORD-1042", "amount": 0}),
        ("change_quantity", {"order_id": "ORD-1042", "quantity": 0}),
        ("add_note", {"order_id": "ORD-1042", "note": "hello"}),
        ("escalate_order", {"order_id": "ORD-1042", "reason": "bored"}),
    ],
)
def test_what_cannot_be_done_is_an_error_for_the_model(name: str, arguments: dict[str, Any]) -> None:
    desk = OrderDesk(WORLD)
    before = desk.state()
    assert set(call(desk, name, **arguments)) == {"error"}
    assert desk.state() == before


def test_a_second_cancellation_is_refused() -> None:
    desk = OrderDesk(WORLD)
    assert call(desk, "cancel_order", order_id="ORD-1042") == {"order_id": "ORD-1042", "status": "cancelled"}
    assert "error" in call(desk, "cancel_order", order_id="ORD-1042")


def test_the_desk_itself_does_not_keep_the_rules() -> None:
    desk = OrderDesk(changed(status="delivered"))
    assert call(desk, "cancel_order", order_id="ORD-1042")["status"] == "cancelled"
    assert call(desk, "refund_order", order_id="ORD-1042", amount=500)["refunded"] == 500


def test_an_exception_in_a_tool_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = OrderDesk(WORLD)
    before = desk.state()

    def broken(self: OrderDesk, order_id: str) -> dict[str, Any]:
        self.database.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", order_id)
        raise ZeroDivisionError

    monkeypatch.setattr(OrderDesk, "cancel_order", broken)
    broken.__is_tool__ = True  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        desk.call("cancel_order", {"order_id": "ORD-1042"})
    assert desk.state() == before


def test_unknown_tools_and_arguments_are_the_callers_mistake() -> None:
    desk = OrderDesk(WORLD)
    with pytest.raises(KeyError):
        desk.call("init", {"config": WORLD})
    with pytest.raises(TypeError):
        desk.call("get_order", {"order": "ORD-1042"})


@pytest.mark.parametrize("kind", [OrderDesk, LibraryDesk, ClinicDesk])
def test_every_desk_has_eight_to_twelve_documented_tools(kind: type[Desk]) -> None:
    assert 8 <= len(kind.tool_names()) <= 12
    assert all(getattr(kind, name).__doc__ for name in kind.tool_names())


def test_the_state_crosses_a_fork_and_the_children_are_apart() -> None:
    desk = OrderDesk(WORLD)
    call(desk, "change_quantity", order_id="ORD-1042", quantity=5)
    desk.database.before_fork()
    with pytest.raises(RuntimeError, match="holds nothing"):
        desk.state()
    quantities = []
    for quantity in (6, 7):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            desk.after_fork()
            before = desk.state()["orders"]["ORD-1042"]["quantity"]
            call(desk, "change_quantity", order_id="ORD-1042", quantity=quantity)
            after = desk.state()["orders"]["ORD-1042"]["quantity"]
            os.write(writer, f"{before} {after}".encode())
            os._exit(0)
        os.close(writer)
        quantities.append(os.read(reader, 100).decode())
        os.close(reader)
        os.waitpid(child, 0)
    desk.after_fork()
    assert quantities == ["5 6", "5 7"]
    assert desk.state()["orders"]["ORD-1042"]["quantity"] == 5


def test_order_desk_results_are_short_and_flat() -> None:
    desk = OrderDesk(WORLD)
    for name, arguments in (("get_order", {"order_id": "ORD-1042"}), ("list_orders", {"customer_id": "C-117"})):
        result = call(desk, name, **arguments)
        assert all(isinstance(value, str | int) for value in result.values())
        assert len(json.dumps(result)) < 250


def test_order_desk_tasks_keep_to_the_vocabulary(tasks: dict[str, Task]) -> None:
    for task in tasks.values():
        if task.domain != "orders":
            continue
        world = task.world["orders"]
        assert len(world["orders"]) <= 5
        for customer in world["customers"]:
            assert customer["id"] in CUSTOMER_IDS
        for order in world["orders"]:
            assert order["id"] in ORDER_IDS
            assert order["item"] in ITEMS
            assert order["quantity"] * order["price"] in AMOUNTS
            assert order["address"].split(" ", 1)[1] in STREETS
            assert order.get("note", "") in ("", *NOTES)
            assert order.get("escalated", "") in ("", *REASONS)


def test_library_renewal_and_loss() -> None:
    desk = LibraryDesk(
        {
            "books": [{"id": "B-1", "title": "A", "author": "B", "kind": "book", "price": 20}],
            "members": [
                {"id": "M-1", "name": "N", "birth_date": "2000-01-01", "email": "e", "fines": 1},
                {"id": "M-2", "name": "O", "birth_date": "2000-01-02", "email": "f"},
            ],
            "loans": [{"id": "L-1", "member_id": "M-1", "book_id": "B-1", "due": "2025-03-12"}],
        }
    )
    assert "error" in call(desk, "renew_loan", loan_id="L-1", new_due_date="March 26")
    assert call(desk, "renew_loan", loan_id="L-1", new_due_date="2025-03-26")["renewals"] == 1
    assert call(desk, "place_hold", member_id="M-2", book_id="B-1", branch="Harbor")["hold_id"] == "H-701"
    assert call(desk, "get_account", member_id="M-1")["loans"]["L-1"]["holds_of_others"] == 1
    assert call(desk, "report_lost", loan_id="L-1")["charged"] == 20
    assert desk.state()["members"]["M-1"]["fines"] == 21
    assert "error" in call(desk, "renew_loan", loan_id="L-1", new_due_date="2025-04-09")
    assert "error" in call(desk, "waive_fines", member_id="M-1", amount=22)


def test_clinic_slots_are_taken_once() -> None:
    desk = ClinicDesk(
        {
            "doctors": [{"id": "D-1", "name": "Dr. A", "specialty": "general"}],
            "slots": [
                {"id": "S-1", "doctor_id": "D-1", "date": "2025-03-12", "time": "09:00"},
                {"id": "S-2", "doctor_id": "D-1", "date": "2025-03-13", "time": "09:00"},
            ],
            "patients": [{"id": "P-1", "name": "N", "birth_date": "2000-01-01", "phone": "1"}],
        }
    )
    assert call(desk, "find_patient", name="n", birth_date="2000-01-01")["patient_id"] == "P-1"
    assert "error" in call(desk, "find_patient", name="N", birth_date="2000-01-02")
    assert call(desk, "book_appointment", patient_id="P-1", slot_id="S-1")["appointment_id"] == "A-601"
    assert "error" in call(desk, "book_appointment", patient_id="P-1", slot_id="S-1")
    assert call(desk, "list_free_slots", doctor_id="D-1") == {"S-2": "2025-03-13 09:00"}
    assert call(desk, "move_appointment", appointment_id="A-601", slot_id="S-2")["slot_id"] == "S-2"
    assert call(desk, "list_free_slots", doctor_id="D-1") == {"S-1": "2025-03-12 09:00"}
    call(desk, "cancel_appointment", appointment_id="A-601")
    assert len(call(desk, "list_free_slots", doctor_id="D-1")) == 2
    assert "error" in call(desk, "move_appointment", appointment_id="A-601", slot_id="S-1")
