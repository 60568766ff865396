"""Refunds: small ones, large ones with the manager's approval, and those that the rules forbid."""

from copy import deepcopy

from thinkingbox.common import Judge, TestContext

"""!
scenario: orders
"""


def expect(x: TestContext, **edits):
    """The final state is the initial one with these edits, {id: {column: value}} for each table, and no other."""
    expected = deepcopy(x.init_result["orders"]["initial"])
    for table, rows in edits.items():
        for key, row in rows.items():
            expected[table][key].update(row)
    final = x.effects["orders"]
    for table, rows in expected.items():
        for key, row in rows.items():
            found = final[table].get(key)
            assert found == row, f"{key}: expected {row}, found {found}"
    assert final == expected


def test_refund_small_bookcase(x: TestContext, judge: Judge):
    """!
    query: Please refund order ORD-1119.
    user_context: |
      You are Simon Moore. You are calm and trust the shop.
      - customer id: C-190
      - order id: ORD-1119
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-157, name: David Evans, address: 76 Field Lane}
        - {id: C-190, name: Simon Moore, address: 90 Grove Lane}
        orders:
        - {id: ORD-1119, customer_id: C-190, item: bookcase, quantity: 1, price: 65,
           status: delivered, address: 90 Grove Lane}
        - {id: ORD-1150, customer_id: C-190, item: drill, quantity: 3, price: 65,
           status: delivered, address: 90 Grove Lane}
        - {id: ORD-1168, customer_id: C-157, item: grill, quantity: 1, price: 25,
           status: shipped, address: 76 Field Lane}
        - {id: ORD-1190, customer_id: C-157, item: fan, quantity: 1, price: 125,
           status: shipped, address: 76 Field Lane}
    """
    expect(x, orders={"ORD-1119": {"refunded": 65}})


def test_refund_small_kettle(x: TestContext, judge: Judge):
    """!
    query: I want my money back for order ORD-1116.
    user_context: |
      You are Mia Quinn. You are brief and answer only what you are asked.
      - customer id: C-148
      - order id: ORD-1116
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-103, name: Kira Ito, address: 55 Maple Street}
        - {id: C-148, name: Mia Quinn, address: 14 Park Avenue}
        orders:
        - {id: ORD-1008, customer_id: C-103, item: pillow, quantity: 2, price: 5,
           status: delivered, address: 55 Maple Street}
        - {id: ORD-1116, customer_id: C-148, item: kettle, quantity: 4, price: 20,
           status: delivered, address: 14 Park Avenue}
        - {id: ORD-1133, customer_id: C-148, item: radio, quantity: 2, price: 115,
           status: cancelled, address: 14 Park Avenue}
        - {id: ORD-1186, customer_id: C-103, item: mattress, quantity: 4, price: 90,
           status: delivered, address: 55 Maple Street}
    """
    expect(x, orders={"ORD-1116": {"refunded": 80}})


def test_refund_of_exactly_100_blender(x: TestContext, judge: Judge):
    """!
    query: Can I get a full refund for the blender, order ORD-1053?
    user_context: |
      You are Hugo Novak. You are polite and do not talk much.
      - customer id: C-180
      - order id: ORD-1053
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-180, name: Hugo Novak, address: 48 Field Lane}
        - {id: C-196, name: Victor Hayes, address: 10 King Street}
        orders:
        - {id: ORD-1053, customer_id: C-180, item: blender, quantity: 1, price: 100,
           status: delivered, address: 48 Field Lane}
        - {id: ORD-1067, customer_id: C-180, item: clock, quantity: 2, price: 40,
           status: shipped, address: 48 Field Lane}
        - {id: ORD-1074, customer_id: C-196, item: monitor, quantity: 1, price: 335,
           status: delivered, address: 10 King Street}
        - {id: ORD-1148, customer_id: C-196, item: stroller, quantity: 1, price: 170,
           status: shipped, address: 10 King Street}
    """
    # Up to 100 dollars no approval is needed.
    expect(x, orders={"ORD-1053": {"refunded": 100}})


def test_refund_part_of_desk(x: TestContext, judge: Judge):
    """!
    query: Refund 55 dollars for the desk, order ORD-1086, please.
    user_context: |
      You are Carla Adams. You have little time and give short answers.
      - customer id: C-168
      - order id: ORD-1086
      - amount: 55
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-110, name: Mia Novak, address: 32 Ash Road}
        - {id: C-168, name: Carla Adams, address: 79 Park Avenue}
        orders:
        - {id: ORD-1083, customer_id: C-168, item: camera, quantity: 1, price: 25,
           status: cancelled, address: 79 Park Avenue}
        - {id: ORD-1086, customer_id: C-168, item: desk, quantity: 1, price: 325,
           status: delivered, address: 79 Park Avenue}
        - {id: ORD-1097, customer_id: C-110, item: hammock, quantity: 1, price: 475,
           status: cancelled, address: 32 Ash Road}
        - {id: ORD-1157, customer_id: C-110, item: chair, quantity: 1, price: 25,
           status: processing, address: 32 Ash Road}
    """
    expect(x, orders={"ORD-1086": {"refunded": 55}})


def test_refund_large_ladder_approved(x: TestContext, judge: Judge):
    """!
    query: The ladder is not for me. Please refund ORD-1081.
    user_context: |
      You are Mia Hayes. You are friendly and answer what you are asked.
      - customer id: C-138
      - order id: ORD-1081
      - confirm: yes
    tags: ["kind:approval"]
    init:
      orders:
        customers:
        - {id: C-138, name: Mia Hayes, address: 86 Forest Road}
        - {id: C-158, name: Victor Silva, address: 14 Maple Street}
        orders:
        - {id: ORD-1015, customer_id: C-138, item: tent, quantity: 1, price: 285,
           status: delivered, address: 86 Forest Road}
        - {id: ORD-1081, customer_id: C-138, item: ladder, quantity: 1, price: 320,
           status: delivered, address: 86 Forest Road, manager: approved}
        - {id: ORD-1102, customer_id: C-158, item: printer, quantity: 1, price: 325,
           status: delivered, address: 14 Maple Street}
        - {id: ORD-1135, customer_id: C-158, item: backpack, quantity: 3, price: 150,
           status: shipped, address: 14 Maple Street}
    """
    expect(x, orders={"ORD-1081": {"approval": "approved", "refunded": 320}})


def test_refund_large_part_of_bench_approved(x: TestContext, judge: Judge):
    """!
    query: I saw the bench for less. Please refund 240 dollars of ORD-1129.
    user_context: |
      You are Hugo Lopez. You like things to be done at once.
      - customer id: C-187
      - order id: ORD-1129
      - amount: 240
      - confirm: yes
    tags: ["kind:approval"]
    init:
      orders:
        customers:
        - {id: C-172, name: Grace Adams, address: 22 Elm Street}
        - {id: C-187, name: Hugo Lopez, address: 70 Cedar Avenue}
        orders:
        - {id: ORD-1014, customer_id: C-172, item: mirror, quantity: 3, price: 40,
           status: cancelled, address: 22 Elm Street}
        - {id: ORD-1094, customer_id: C-172, item: blanket, quantity: 2, price: 175,
           status: cancelled, address: 22 Elm Street}
        - {id: ORD-1107, customer_id: C-187, item: heater, quantity: 1, price: 105,
           status: cancelled, address: 70 Cedar Avenue}
        - {id: ORD-1129, customer_id: C-187, item: bench, quantity: 3, price: 155,
           status: delivered, address: 70 Cedar Avenue}
    """
    expect(x, orders={"ORD-1129": {"approval": "approved", "refunded": 240}})


def test_no_refund_of_jacket_denied(x: TestContext, judge: Judge):
    """!
    query: I sent the jacket back. Please refund order ORD-1114.
    user_context: |
      You are Ines Silva. You are calm and trust the shop.
      - customer id: C-181
      - order id: ORD-1114
      - confirm: yes
    tags: ["kind:approval"]
    init:
      orders:
        customers:
        - {id: C-154, name: Simon Klein, address: 46 Birch Lane}
        - {id: C-181, name: Ines Silva, address: 81 Elm Street}
        orders:
        - {id: ORD-1017, customer_id: C-181, item: keyboard, quantity: 2, price: 45,
           status: shipped, address: 81 Elm Street}
        - {id: ORD-1092, customer_id: C-154, item: fan, quantity: 1, price: 445,
           status: delivered, address: 46 Birch Lane}
        - {id: ORD-1114, customer_id: C-181, item: jacket, quantity: 2, price: 85,
           status: delivered, address: 81 Elm Street, manager: denied}
        - {id: ORD-1185, customer_id: C-154, item: blanket, quantity: 1, price: 315,
           status: processing, address: 46 Birch Lane}
    """
    # The manager was asked and said no.
    expect(x, orders={"ORD-1114": {"approval": "denied"}})


def test_no_refund_of_processing_ladder(x: TestContext, judge: Judge):
    """!
    query: Refund order ORD-1115, please.
    user_context: |
      You are Ines Olsen. You are brief and answer only what you are asked.
      - customer id: C-179
      - order id: ORD-1115
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-138, name: Ines Weber, address: 87 Station Road}
        - {id: C-179, name: Ines Olsen, address: 97 Ash Road}
        orders:
        - {id: ORD-1000, customer_id: C-179, item: desk, quantity: 4, price: 5,
           status: processing, address: 97 Ash Road}
        - {id: ORD-1034, customer_id: C-138, item: monitor, quantity: 3, price: 95,
           status: cancelled, address: 87 Station Road}
        - {id: ORD-1112, customer_id: C-138, item: pillow, quantity: 2, price: 115,
           status: processing, address: 87 Station Road}
        - {id: ORD-1115, customer_id: C-179, item: ladder, quantity: 2, price: 50,
           status: processing, address: 97 Ash Road}
    """
    # Only a delivered order can be refunded.
    expect(x, orders={"ORD-1115": {"refunded": 0}})


def test_no_second_refund_of_bookcase(x: TestContext, judge: Judge):
    """!
    query: I would like a refund of the whole amount of order ORD-1135.
    user_context: |
      You are Leo Weber. You are polite and do not talk much.
      - customer id: C-150
      - order id: ORD-1135
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-103, name: Carla Klein, address: 79 Lake Avenue}
        - {id: C-150, name: Leo Weber, address: 81 Maple Street}
        orders:
        - {id: ORD-1046, customer_id: C-103, item: camera, quantity: 1, price: 165,
           status: processing, address: 79 Lake Avenue}
        - {id: ORD-1110, customer_id: C-150, item: printer, quantity: 3, price: 95,
           status: shipped, address: 81 Maple Street}
        - {id: ORD-1135, customer_id: C-150, item: bookcase, quantity: 1, price: 60,
           status: delivered, address: 81 Maple Street, refunded: 60}
        - {id: ORD-1158, customer_id: C-103, item: lamp, quantity: 2, price: 15,
           status: cancelled, address: 79 Lake Avenue}
    """
    # It has a refund already.
    expect(x, orders={"ORD-1135": {"refunded": 60}})


def test_no_refund_beyond_price_of_rug(x: TestContext, judge: Judge):
    """!
    query: Please refund 35 dollars of order ORD-1061.
    user_context: |
      You are Simon Quinn. You have little time and give short answers.
      - customer id: C-183
      - order id: ORD-1061
      - amount: 35
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-106, name: Simon Lopez, address: 24 River Road}
        - {id: C-183, name: Simon Quinn, address: 24 Park Avenue}
        orders:
        - {id: ORD-1019, customer_id: C-106, item: tent, quantity: 1, price: 490,
           status: delivered, address: 24 River Road}
        - {id: ORD-1059, customer_id: C-106, item: backpack, quantity: 1, price: 115,
           status: cancelled, address: 24 River Road}
        - {id: ORD-1061, customer_id: C-183, item: rug, quantity: 2, price: 10,
           status: delivered, address: 24 Park Avenue}
        - {id: ORD-1117, customer_id: C-183, item: mattress, quantity: 2, price: 60,
           status: cancelled, address: 24 Park Avenue}
    """
    # More than the order cost: nothing may change.
    expect(x, orders={"ORD-1061": {"refunded": 0}})
