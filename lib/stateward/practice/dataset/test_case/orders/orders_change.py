"""Changing the quantity, the address or the note of an order, where the rules allow it."""

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


def test_quantity_of_blanket(x: TestContext, judge: Judge):
    """!
    query: Please change order ORD-1166 to 9 pieces.
    user_context: |
      You are Ada Klein. You are polite and do not talk much.
      - customer id: C-149
      - order id: ORD-1166
      - quantity: 9
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-114, name: Ada Reed, address: 12 Forest Road}
        - {id: C-149, name: Ada Klein, address: 23 Cedar Avenue}
        orders:
        - {id: ORD-1034, customer_id: C-114, item: stroller, quantity: 1, price: 490,
           status: shipped, address: 12 Forest Road}
        - {id: ORD-1049, customer_id: C-149, item: keyboard, quantity: 1, price: 335,
           status: cancelled, address: 23 Cedar Avenue}
        - {id: ORD-1166, customer_id: C-149, item: blanket, quantity: 1, price: 30,
           status: processing, address: 23 Cedar Avenue}
        - {id: ORD-1192, customer_id: C-114, item: drill, quantity: 1, price: 75,
           status: processing, address: 12 Forest Road}
    """
    expect(x, orders={"ORD-1166": {"quantity": 9}})


def test_quantity_of_bookcase(x: TestContext, judge: Judge):
    """!
    query: Make it 8 pieces in order ORD-1112, please.
    user_context: |
      You are Rosa Novak. You have little time and give short answers.
      - customer id: C-163
      - order id: ORD-1112
      - quantity: 8
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-163, name: Rosa Novak, address: 1 Forest Road}
        - {id: C-180, name: Simon Reed, address: 20 Station Road}
        orders:
        - {id: ORD-1006, customer_id: C-180, item: candle, quantity: 3, price: 20,
           status: shipped, address: 20 Station Road}
        - {id: ORD-1033, customer_id: C-163, item: tent, quantity: 1, price: 55,
           status: cancelled, address: 1 Forest Road}
        - {id: ORD-1083, customer_id: C-180, item: desk, quantity: 4, price: 15,
           status: cancelled, address: 20 Station Road}
        - {id: ORD-1112, customer_id: C-163, item: bookcase, quantity: 3, price: 10,
           status: processing, address: 1 Forest Road}
    """
    expect(x, orders={"ORD-1112": {"quantity": 8}})


def test_no_new_quantity_of_shipped_hammock(x: TestContext, judge: Judge):
    """!
    query: I need 9 of the hammock in order ORD-1152.
    user_context: |
      You are Victor Jensen. You are friendly and answer what you are asked.
      - customer id: C-166
      - order id: ORD-1152
      - quantity: 9
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-126, name: Kira Novak, address: 47 Hill Road}
        - {id: C-166, name: Victor Jensen, address: 78 Grove Lane}
        orders:
        - {id: ORD-1063, customer_id: C-166, item: grill, quantity: 3, price: 15,
           status: processing, address: 78 Grove Lane}
        - {id: ORD-1080, customer_id: C-126, item: camera, quantity: 4, price: 65,
           status: processing, address: 47 Hill Road}
        - {id: ORD-1086, customer_id: C-126, item: printer, quantity: 1, price: 460,
           status: delivered, address: 47 Hill Road}
        - {id: ORD-1152, customer_id: C-166, item: hammock, quantity: 2, price: 20,
           status: shipped, address: 78 Grove Lane}
    """
    # Only a processing order can be changed.
    expect(x, orders={"ORD-1152": {"quantity": 2}})


def test_address_of_bench(x: TestContext, judge: Judge):
    """!
    query: Please send order ORD-1127 to 76 Pine Street.
    user_context: |
      You are Grace Dunn. You like things to be done at once.
      - customer id: C-121
      - order id: ORD-1127
      - address: 76 Pine Street
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-121, name: Grace Dunn, address: 78 Pine Street}
        - {id: C-157, name: Simon Olsen, address: 74 Garden Street}
        orders:
        - {id: ORD-1087, customer_id: C-157, item: monitor, quantity: 1, price: 145,
           status: processing, address: 74 Garden Street}
        - {id: ORD-1127, customer_id: C-121, item: bench, quantity: 1, price: 475,
           status: processing, address: 78 Pine Street}
        - {id: ORD-1135, customer_id: C-121, item: ladder, quantity: 1, price: 470,
           status: delivered, address: 78 Pine Street}
        - {id: ORD-1148, customer_id: C-157, item: helmet, quantity: 2, price: 80,
           status: shipped, address: 74 Garden Street}
    """
    expect(x, orders={"ORD-1127": {"address": "76 Pine Street"}})


def test_address_of_backpack(x: TestContext, judge: Judge):
    """!
    query: Change the address of order ORD-1011 to 85 Field Lane, please.
    user_context: |
      You are Paul Costa. You are calm and trust the shop.
      - customer id: C-110
      - order id: ORD-1011
      - address: 85 Field Lane
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-110, name: Paul Costa, address: 24 Forest Road}
        - {id: C-183, name: Rosa Jensen, address: 36 Cedar Avenue}
        orders:
        - {id: ORD-1011, customer_id: C-110, item: backpack, quantity: 2, price: 240,
           status: processing, address: 24 Forest Road}
        - {id: ORD-1067, customer_id: C-110, item: mirror, quantity: 2, price: 220,
           status: shipped, address: 24 Forest Road}
        - {id: ORD-1090, customer_id: C-183, item: monitor, quantity: 1, price: 455,
           status: cancelled, address: 36 Cedar Avenue}
        - {id: ORD-1139, customer_id: C-183, item: lamp, quantity: 1, price: 85,
           status: processing, address: 36 Cedar Avenue}
    """
    expect(x, orders={"ORD-1011": {"address": "85 Field Lane"}})


def test_no_new_address_of_delivered_printer(x: TestContext, judge: Judge):
    """!
    query: I moved. Order ORD-1077 should go to 68 Station Road.
    user_context: |
      You are Ada Moore. You are brief and answer only what you are asked.
      - customer id: C-147
      - order id: ORD-1077
      - address: 68 Station Road
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-147, name: Ada Moore, address: 54 Forest Road}
        - {id: C-150, name: Simon Park, address: 4 Birch Lane}
        orders:
        - {id: ORD-1034, customer_id: C-150, item: ladder, quantity: 4, price: 10,
           status: processing, address: 4 Birch Lane}
        - {id: ORD-1050, customer_id: C-147, item: kettle, quantity: 1, price: 95,
           status: delivered, address: 54 Forest Road}
        - {id: ORD-1077, customer_id: C-147, item: printer, quantity: 4, price: 15,
           status: delivered, address: 54 Forest Road}
        - {id: ORD-1146, customer_id: C-150, item: heater, quantity: 1, price: 95,
           status: processing, address: 4 Birch Lane}
    """
    # Only a processing order can be changed.
    expect(x, orders={"ORD-1077": {"address": "54 Forest Road"}})


def test_tent_to_the_home_address(x: TestContext, judge: Judge):
    """!
    query: Please send order ORD-1136 to my home address.
    user_context: |
      You are Ben Reed. You are polite and do not talk much.
      - customer id: C-121
      - order id: ORD-1136
      - confirm: yes
    tags: ["kind:lookup"]
    init:
      orders:
        customers:
        - {id: C-121, name: Ben Reed, address: 56 Pine Street}
        - {id: C-145, name: Elena Evans, address: 58 Oak Lane}
        orders:
        - {id: ORD-1060, customer_id: C-145, item: candle, quantity: 1, price: 265,
           status: shipped, address: 58 Oak Lane}
        - {id: ORD-1067, customer_id: C-145, item: fan, quantity: 1, price: 405,
           status: processing, address: 58 Oak Lane}
        - {id: ORD-1091, customer_id: C-121, item: backpack, quantity: 2, price: 70,
           status: cancelled, address: 56 Pine Street}
        - {id: ORD-1136, customer_id: C-121, item: tent, quantity: 3, price: 155,
           status: processing, address: 9 Hill Road}
    """
    expect(x, orders={"ORD-1136": {"address": "56 Pine Street"}})


def test_note_for_bookcase(x: TestContext, judge: Judge):
    """!
    query: Please add the note leave at door to order ORD-1141.
    user_context: |
      You are Elena Moore. You have little time and give short answers.
      - customer id: C-134
      - order id: ORD-1141
      - note: leave at door
      - confirm: yes
    tags: ["kind:write"]
    init:
      orders:
        customers:
        - {id: C-134, name: Elena Moore, address: 31 King Street}
        - {id: C-199, name: Olga Lopez, address: 3 King Street}
        orders:
        - {id: ORD-1081, customer_id: C-199, item: blender, quantity: 2, price: 85,
           status: cancelled, address: 3 King Street}
        - {id: ORD-1110, customer_id: C-199, item: clock, quantity: 3, price: 35,
           status: processing, address: 3 King Street}
        - {id: ORD-1141, customer_id: C-134, item: bookcase, quantity: 1, price: 165,
           status: processing, address: 31 King Street}
        - {id: ORD-1172, customer_id: C-134, item: helmet, quantity: 1, price: 495,
           status: shipped, address: 31 King Street}
    """
    expect(x, orders={"ORD-1141": {"note": "leave at door"}})


def test_no_note_for_shipped_stroller(x: TestContext, judge: Judge):
    """!
    query: Order ORD-1055 is a present. Please add the note gift wrap.
    user_context: |
      You are Mia Berg. You are friendly and answer what you are asked.
      - customer id: C-140
      - order id: ORD-1055
      - note: gift wrap
      - confirm: yes
    tags: ["kind:limit"]
    init:
      orders:
        customers:
        - {id: C-140, name: Mia Berg, address: 91 Lake Avenue}
        - {id: C-162, name: Rosa Hayes, address: 62 Cedar Avenue}
        orders:
        - {id: ORD-1055, customer_id: C-140, item: stroller, quantity: 1, price: 430,
           status: shipped, address: 91 Lake Avenue}
        - {id: ORD-1113, customer_id: C-140, item: mattress, quantity: 1, price: 145,
           status: processing, address: 91 Lake Avenue}
        - {id: ORD-1170, customer_id: C-162, item: bench, quantity: 3, price: 30,
           status: cancelled, address: 62 Cedar Avenue}
        - {id: ORD-1186, customer_id: C-162, item: mirror, quantity: 1, price: 155,
           status: shipped, address: 62 Cedar Avenue}
    """
    # Only a processing order can be changed.
    expect(x, orders={"ORD-1055": {"note": ""}})
