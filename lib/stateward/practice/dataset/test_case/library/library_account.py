"""The member's account: fines, contact details and questions."""

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


def test_waive_a_small_fine_for_illness(x: TestContext, judge: Judge):
    """!
    query: >-
      I was ill for two weeks and could not return my books. Could you take the 8 dollars off? Member M-325.
    user_context: |
      You are Elsa Norden. You had the flu.
      - member id: M-325
      - amount: 8
      - reason: I was ill
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-325, name: Elsa Norden, birth_date: "1991-03-15", email: "elsa.norden@mail.test", fines: 8}
        - {id: M-326, name: Karl Otto, birth_date: "1970-07-20", email: "karl.otto@mail.test", fines: 15}
    """
    expect(x, members={"M-325": {"fines": 0}})


def test_waive_a_large_fine_with_approval(x: TestContext, judge: Judge):
    """!
    query: >-
      The Harbor branch was closed when I came to return my films, and now I owe 14 dollars. Please waive all of
      it. I am M-328.
    user_context: |
      You are Hugo Brandt. The branch was closed for repairs that week.
      - member id: M-328
      - amount: 14
      - reason: the Harbor branch was closed
      - confirm: yes
    tags: ["kind:approval"]
    init:
      library:
        members:
        - {id: M-328, name: Hugo Brandt, birth_date: "1986-12-12", email: "hugo.brandt@mail.test", fines: 14,
           head_librarian: approved}
        loans:
        - {id: L-581, member_id: M-328, book_id: B-22, due: "2025-03-14"}
    """
    expect(x, members={"M-328": {"waiver": "approved", "fines": 0}})


def test_large_waiver_denied(x: TestContext, judge: Judge):
    """!
    query: >-
      I had an operation and my books came back late. Can you waive my fines of 19 dollars? My member id is M-330.
    user_context: |
      You are Sofia Lang. You accept whatever the library decides.
      - member id: M-330
      - amount: 19
      - reason: I was in hospital
      - confirm: yes
    tags: ["kind:approval"]
    init:
      library:
        members:
        - {id: M-330, name: Sofia Lang, birth_date: "1955-02-02", email: "sofia.lang@mail.test", fines: 19,
           head_librarian: denied}
    """
    # The head librarian was asked and said no.
    expect(x, members={"M-330": {"waiver": "denied"}})


def test_new_email_after_the_birth_date(x: TestContext, judge: Judge):
    """!
    query: Please change my email address to ela.moor@post.test. I am member M-332.
    user_context: |
      You are Ela Moor. You have a new email address.
      - member id: M-332
      - birth date: 1997-05-18
      - email: ela.moor@post.test
      - confirm: yes
    tags: ["kind:ask"]
    init:
      library:
        members:
        - {id: M-332, name: Ela Moor, birth_date: "1997-05-18", email: "ela.moor@mail.test"}
        - {id: M-333, name: Emma Moor, birth_date: "1999-05-18", email: "emma.moor@mail.test"}
    """
    expect(x, members={"M-332": {"email": "ela.moor@post.test"}})


def test_explain_a_refused_hold(x: TestContext, judge: Judge):
    """!
    query: >-
      I tried to reserve Night Ferry, but it did not work. Please do it for me, at Central. My id is M-335.
    user_context: |
      You are Rolf Steiner. You would like to understand what the problem is.
      - member id: M-335
      - title: Night Ferry
      - branch: Central
      - confirm: yes
    tags: ["kind:judged"]
    init:
      library:
        members:
        - {id: M-335, name: Rolf Steiner, birth_date: "1976-03-30", email: "rolf.steiner@mail.test",
           card: suspended, fines: 6}
        loans:
        - {id: L-591, member_id: M-335, book_id: B-15, due: "2025-03-16"}
    """
    # Nothing may change, and the member has to learn why.
    expect(x, members={"M-335": {"card": "suspended"}})
    assert judge.text_yesno(
        x.response, "Does the message say that the hold is not possible because the card is suspended?"
    )
