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


def test_hold_night_ferry_where_the_member_says(x: TestContext, judge: Judge):
    """!
    query: Please put Night Ferry on hold for me.
    user_context: |
      You are Adam Sorel. You live in the north of the city.
      - member id: M-319
      - title: Night Ferry
      - branch: Northside
      - confirm: yes
    tags: ["kind:ask"]
    init:
      library:
        members:
        - {id: M-319, name: Adam Sorel, birth_date: "2000-05-05", email: "adam.sorel@mail.test", fines: 12}
        loans:
        - {id: L-571, member_id: M-319, book_id: B-11, due: "2025-03-27"}
    """
    expect(x, holds={"H-701": {"member_id": "M-319", "book_id": "B-16", "branch": "Northside"}})


def test_no_hold_on_a_reference_title(x: TestContext, judge: Judge):
    """!
    query: I need the Dictionary of Trades for the weekend. Please reserve it for me at Central. I am M-321.
    user_context: |
      You are Vera Stone. You hope to take the dictionary home.
      - member id: M-321
      - title: Dictionary of Trades
      - branch: Central
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-321, name: Vera Stone, birth_date: "1979-04-04", email: "vera.stone@mail.test"}
    """
    # Reference titles cannot be put on hold.
    expect(x, members={"M-321": {"fines": 0}})


def test_cancel_a_hold_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: I do not need Small Engines any more, please cancel my reservation. Member M-323.
    user_context: |
      You are Martin Ehrlich. You want to keep all your other reservations.
      - member id: M-323
      - title: Small Engines
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-323, name: Martin Ehrlich, birth_date: "1961-08-23", email: "martin.ehrlich@mail.test"}
        holds:
        - {id: H-741, member_id: M-323, book_id: B-15, branch: Central}
        - {id: H-742, member_id: M-323, book_id: B-17, branch: Central}
    """
    expect(x, holds={"H-742": None})


def test_no_fourth_hold(x: TestContext, judge: Judge):
    """!
    query: >-
      One more reservation please: The Last Tram, pick-up at Central. My id is M-356.
    user_context: |
      You are Leif Dahl. You like to have many things to read and to watch.
      - member id: M-356
      - title: The Last Tram
      - branch: Central
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-356, name: Leif Dahl, birth_date: "1989-09-19", email: "leif.dahl@mail.test"}
        holds:
        - {id: H-751, member_id: M-356, book_id: B-12, branch: Central}
        - {id: H-752, member_id: M-356, book_id: B-16, branch: Central}
        - {id: H-753, member_id: M-356, book_id: B-18, branch: Harbor}
    """
    # Three holds are the most.
    expect(x, holds={"H-751": {"branch": "Central"}})
