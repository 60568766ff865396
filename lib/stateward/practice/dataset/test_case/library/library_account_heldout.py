"""The member's account: fines, contact details and questions."""

from copy import deepcopy

from thinkingbox.common import Judge, TestContext
from thinkingbox.common.rubrics_judge import RubricJudge

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


def test_no_waiver_for_a_holiday(x: TestContext, judge: Judge):
    """!
    query: >-
      I was on holiday and forgot my books, so I got 9 dollars of fines. Could you drop them? Member id M-363.
    user_context: |
      You are Marco Bianchi. You just forgot; you were neither ill nor was anything closed.
      - member id: M-363
      - amount: 9
      - reason: I was on holiday
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-363, name: Marco Bianchi, birth_date: "1984-08-14", email: "marco.bianchi@mail.test", fines: 9}
    """
    # A holiday is no reason to waive fines.
    expect(x, members={"M-363": {"fines": 9}})


def test_waive_a_large_fine_after_illness(x: TestContext, judge: Judge):
    """!
    query: I spent a month in hospital. Would it be possible to cancel my fines of 17 dollars? I am M-365.
    user_context: |
      You are Agnes Thorn. You are well again.
      - member id: M-365
      - amount: 17
      - reason: I was in hospital
      - confirm: yes
    tags: ["kind:approval"]
    init:
      library:
        members:
        - {id: M-365, name: Agnes Thorn, birth_date: "1948-01-29", email: "agnes.thorn@mail.test", fines: 17,
           head_librarian: approved}
        - {id: M-366, name: Alma Thorn, birth_date: "1950-01-29", email: "alma.thorn@mail.test", fines: 5}
    """
    expect(x, members={"M-365": {"waiver": "approved", "fines": 0}})


def test_no_new_email_without_the_right_birth_date(x: TestContext, judge: Judge):
    """!
    query: Change the email of member M-368 to jp@post.test, please.
    user_context: |
      You are helping your neighbour Jan Peeters, whose library card you have in hand. You believe that he was born
      on 1960-01-01.
      - member id: M-368
      - birth date: 1960-01-01
      - email: jp@post.test
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-368, name: Jan Peeters, birth_date: "1961-10-01", email: "jan.peeters@mail.test"}
    """
    # The birth date does not match.
    expect(x, members={"M-368": {"email": "jan.peeters@mail.test"}})


def test_renew_and_change_email(x: TestContext, judge: Judge):
    """!
    query: >-
      Two things: please renew A Winter Atlas, and my email is now t.lehner@post.test. Member M-370.
    user_context: |
      You are Tilda Lehner. You are in a hurry and short of words.
      - member id: M-370
      - birth date: 1995-12-05
      - title: A Winter Atlas
      - email: t.lehner@post.test
      - confirm: yes
    tags: ["kind:several"]
    init:
      library:
        members:
        - {id: M-370, name: Tilda Lehner, birth_date: "1995-12-05", email: "tilda.lehner@mail.test"}
        loans:
        - {id: L-671, member_id: M-370, book_id: B-13, due: "2025-03-10", renewals: 1}
        - {id: L-672, member_id: M-370, book_id: B-23, due: "2025-03-12"}
    """
    expect(
        x,
        loans={"L-671": {"due": "2025-03-24", "renewals": 2}},
        members={"M-370": {"email": "t.lehner@post.test"}},
    )


def test_opening_hours_and_fines(x: TestContext, judge: Judge):
    """!
    query: Is the Harbor branch open today? And how much do I owe? I am member M-372.
    user_context: |
      You are Carmen Ruiz. You only want the two answers.
      - member id: M-372
      - confirm: yes
    tags: ["kind:judged"]
    init:
      library:
        members:
        - {id: M-372, name: Carmen Ruiz, birth_date: "1982-02-11", email: "carmen.ruiz@mail.test", fines: 11}
        holds:
        - {id: H-781, member_id: M-372, book_id: B-18, branch: Harbor}
    """
    # A question changes nothing; both answers have to be right.
    expect(x, members={"M-372": {"fines": 11}})
    rubric = RubricJudge(judge=judge, x=x)
    rubric.evaluate(
        response=x.response,
        rubrics=[
            rubric.Config(
                criterion="The message says that Harbor is closed today, or that it is closed on Mondays", weight=50
            ),
            rubric.Config(criterion="The message says that the member owes 11 dollars", weight=50),
            rubric.Config(criterion="The message claims that something was changed", weight=50, is_penalty=True),
        ],
        global_threshold=0.9,
        throw_on_failure=True,
    )
