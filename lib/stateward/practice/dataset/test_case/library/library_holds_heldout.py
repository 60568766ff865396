"""Holds: placing them where the rules allow it, and cancelling them after a yes."""

from copy import deepcopy

from thinkingbox.common import Judge, TestContext

"""!
scenario: library
"""


def expect(x: TestContext, **edits):
    """The final state is the initial one with these edits and no other.

    Edits are {id: {column: value}} for each table; an id that is not there yet is a new row, None removes one.
    """
    expected = deepcopy(x.init_result["library"]["initial"])
    for table, rows in edits.items():
        for key, row in rows.items():
            if row is None:
                del expected[table][key]
            else:
                expected[table].setdefault(key, {}).update(row)
    final = x.effects["library"]
    for table, rows in expected.items():
        for key in rows.keys() | final[table].keys():
            wanted, found = rows.get(key), final[table].get(key)
            assert found == wanted, f"{table} {key}: expected {wanted}, found {found}"


def test_hold_gardens_of_glass_at_harbor(x: TestContext, judge: Judge):
    """!
    query: >-
      I would like to reserve Gardens of Glass and pick it up at the Harbor branch. Member id: M-316.
    user_context: |
      You are Ruth Amsel. You can wait for the book.
      - member id: M-316
      - title: Gardens of Glass
      - branch: Harbor
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-316, name: Ruth Amsel, birth_date: "1966-01-16", email: "ruth.amsel@mail.test"}
        - {id: M-317, name: Theo Blank, birth_date: "1987-12-01", email: "theo.blank@mail.test"}
        loans:
        - {id: L-561, member_id: M-317, book_id: B-12, due: "2025-03-20"}
        holds:
        - {id: H-731, member_id: M-316, book_id: B-13, branch: Central}
    """
    expect(x, holds={"H-732": {"member_id": "M-316", "book_id": "B-12", "branch": "Harbor"}})


def test_no_hold_with_high_fines(x: TestContext, judge: Judge):
    """!
    query: Could you reserve The Salt Road for me at Harbor? Member M-354.
    user_context: |
      You are Iris Calder. You know that you have some fines, but not how much.
      - member id: M-354
      - title: The Salt Road
      - branch: Harbor
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-354, name: Iris Calder, birth_date: "1998-11-11", email: "iris.calder@mail.test", fines: 26}
        loans:
        - {id: L-651, member_id: M-354, book_id: B-13, due: "2025-03-23"}
    """
    # Fines above 20 dollars.
    expect(x, members={"M-354": {"fines": 26}})


def test_hold_harvest_moon_where_the_member_says(x: TestContext, judge: Judge):
    """!
    query: I want to reserve the film Harvest Moon.
    user_context: |
      You are Paula Wirth. You work near the harbor.
      - member id: M-358
      - title: Harvest Moon
      - branch: Harbor
      - confirm: yes
    tags: ["kind:ask"]
    init:
      library:
        members:
        - {id: M-358, name: Paula Wirth, birth_date: "1974-10-30", email: "paula.wirth@mail.test"}
        - {id: M-359, name: Ned Alder, birth_date: "1980-01-01", email: "ned.alder@mail.test"}
        loans:
        - {id: L-661, member_id: M-359, book_id: B-21, due: "2025-03-15"}
        holds:
        - {id: H-761, member_id: M-359, book_id: B-22, branch: Northside}
    """
    expect(x, holds={"H-762": {"member_id": "M-358", "book_id": "B-21", "branch": "Harbor"}})


def test_keep_the_hold_after_all(x: TestContext, judge: Judge):
    """!
    query: Please cancel my reservation of Bread at Home. I am member M-361.
    user_context: |
      You are Anton Weiss. Asked to confirm, you decide to wait for the book after all and say no.
      - member id: M-361
      - title: Bread at Home
      - confirm: no
    tags: ["kind:declined"]
    init:
      library:
        members:
        - {id: M-361, name: Anton Weiss, birth_date: "1964-06-24", email: "anton.weiss@mail.test"}
        holds:
        - {id: H-771, member_id: M-361, book_id: B-15, branch: Northside}
        - {id: H-772, member_id: M-361, book_id: B-11, branch: Northside}
    """
    # The member says no, so the hold stays.
    expect(x, holds={"H-771": {"branch": "Northside"}})
