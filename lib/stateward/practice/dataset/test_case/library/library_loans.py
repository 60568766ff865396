"""Loans: renewals within and beyond the rules, and lost titles."""

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


def test_renew_the_salt_road(x: TestContext, judge: Judge):
    """!
    query: Hello, could you renew The Salt Road for me? My member id is M-301.
    user_context: |
      You are Clara Voss. You would like to keep the book two weeks longer. You are friendly and answer only what
      you are asked.
      - member id: M-301
      - title: The Salt Road
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-301, name: Clara Voss, birth_date: "1988-04-12", email: "clara.voss@mail.test"}
        - {id: M-302, name: Ivan Petrov, birth_date: "1975-09-30", email: "ivan.petrov@mail.test"}
        loans:
        - {id: L-501, member_id: M-301, book_id: B-11, due: "2025-03-14"}
        - {id: L-502, member_id: M-301, book_id: B-15, due: "2025-03-20", renewals: 1}
        - {id: L-503, member_id: M-302, book_id: B-13, due: "2025-03-12"}
    """
    expect(x, loans={"L-501": {"due": "2025-03-28", "renewals": 1}})


def test_renew_a_film_for_a_week(x: TestContext, judge: Judge):
    """!
    query: I have the film Paper Kites at home and would like to keep it a bit longer. I am member M-304.
    user_context: |
      You are Samuel Okoro. You want the longest renewal that is possible.
      - member id: M-304
      - title: Paper Kites
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-304, name: Samuel Okoro, birth_date: "1992-01-25", email: "samuel.okoro@mail.test"}
        loans:
        - {id: L-511, member_id: M-304, book_id: B-23, due: "2025-03-11"}
        - {id: L-512, member_id: M-304, book_id: B-17, due: "2025-03-25"}
    """
    expect(x, loans={"L-511": {"due": "2025-03-18", "renewals": 1}})


def test_no_third_renewal_of_a_winter_atlas(x: TestContext, judge: Judge):
    """!
    query: Please renew A Winter Atlas once more. Member M-307.
    user_context: |
      You are Greta Lund. You would be sorry to give the book back, but you accept the rules.
      - member id: M-307
      - title: A Winter Atlas
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-307, name: Greta Lund, birth_date: "1969-11-02", email: "greta.lund@mail.test"}
        loans:
        - {id: L-521, member_id: M-307, book_id: B-13, due: "2025-03-15", renewals: 2}
        - {id: L-522, member_id: M-307, book_id: B-12, due: "2025-03-19"}
    """
    # A book can be renewed twice, and it was.
    expect(x, loans={"L-521": {"due": "2025-03-15", "renewals": 2}})


def test_no_renewal_long_after_the_due_date(x: TestContext, judge: Judge):
    """!
    query: I forgot to bring back Small Engines. Can you just renew it? My id is M-309.
    user_context: |
      You are Bruno Keller. You are a little embarrassed about the delay.
      - member id: M-309
      - title: Small Engines
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-309, name: Bruno Keller, birth_date: "1981-06-17", email: "bruno.keller@mail.test", fines: 4}
        loans:
        - {id: L-531, member_id: M-309, book_id: B-17, due: "2025-02-26"}
    """
    # Twelve days overdue; seven are allowed.
    expect(x, loans={"L-531": {"due": "2025-02-26"}})


def test_renew_everything_that_can_be_renewed(x: TestContext, judge: Judge):
    """!
    query: Can you renew all my loans, please? I am member M-311.
    user_context: |
      You are Helen Marsh. You want to keep whatever you may keep.
      - member id: M-311
      - confirm: yes
    tags: ["kind:several"]
    init:
      library:
        members:
        - {id: M-311, name: Helen Marsh, birth_date: "1977-07-07", email: "helen.marsh@mail.test"}
        - {id: M-312, name: Jin Sung, birth_date: "2001-10-10", email: "jin.sung@mail.test"}
        loans:
        - {id: L-541, member_id: M-311, book_id: B-14, due: "2025-03-12"}
        - {id: L-542, member_id: M-311, book_id: B-22, due: "2025-03-13"}
        - {id: L-543, member_id: M-311, book_id: B-18, due: "2025-03-17", renewals: 2}
        holds:
        - {id: H-711, member_id: M-312, book_id: B-17, branch: Central}
    """
    expect(x, loans={"L-541": {"due": "2025-03-26", "renewals": 1}, "L-542": {"due": "2025-03-20", "renewals": 1}})


def test_keep_looking_for_birds_of_the_coast(x: TestContext, judge: Judge):
    """!
    query: I cannot find Birds of the Coast anywhere. Maybe it is lost. My id is M-352.
    user_context: |
      You are Felipe Duarte. When you hear that you would have to pay, you prefer to look for the book again and say
      no.
      - member id: M-352
      - title: Birds of the Coast
      - confirm: no
    tags: ["kind:declined"]
    init:
      library:
        members:
        - {id: M-352, name: Felipe Duarte, birth_date: "1972-02-28", email: "felipe.duarte@mail.test"}
        loans:
        - {id: L-641, member_id: M-352, book_id: B-18, due: "2025-03-24"}
    """
    # The member says no to the charge.
    expect(x, loans={"L-641": {"status": "out"}})


def test_explain_the_price_before_recording_a_loss(x: TestContext, judge: Judge):
    """!
    query: What happens if I have lost Bread at Home? Do not record anything yet. Member M-337.
    user_context: |
      You are Silvia Graf. You want to know the cost before you decide.
      - member id: M-337
      - title: Bread at Home
      - confirm: no
    tags: ["kind:judged"]
    init:
      library:
        members:
        - {id: M-337, name: Silvia Graf, birth_date: "1971-09-12", email: "silvia.graf@mail.test"}
        loans:
        - {id: L-596, member_id: M-337, book_id: B-15, due: "2025-03-19"}
    """
    # Nothing may be recorded.
    expect(x, loans={"L-596": {"status": "out", "due": "2025-03-19"}})
    rubric = RubricJudge(judge=judge, x=x)
    rubric.evaluate(
        response=x.response,
        rubrics=[
            rubric.Config(criterion="The message says that the replacement price will be charged", weight=60),
            rubric.Config(criterion="The message makes clear that nothing has been recorded so far", weight=40),
        ],
        global_threshold=0.6,
        throw_on_failure=True,
    )
