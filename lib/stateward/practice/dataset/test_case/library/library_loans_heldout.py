"""Loans: renewals within and beyond the rules, and lost titles."""

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


def test_renew_night_ferry_a_few_days_late(x: TestContext, judge: Judge):
    """!
    query: My copy of Night Ferry was due last week. Is a renewal still possible? I am M-341.
    user_context: |
      You are Dana Whitlock. If it is possible, you want the renewal.
      - member id: M-341
      - title: Night Ferry
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-341, name: Dana Whitlock, birth_date: "1990-08-08", email: "dana.whitlock@mail.test", fines: 2}
        - {id: M-342, name: Emil Hart, birth_date: "1958-03-03", email: "emil.hart@mail.test"}
        loans:
        - {id: L-601, member_id: M-341, book_id: B-16, due: "2025-03-05"}
        - {id: L-602, member_id: M-342, book_id: B-16, due: "2025-03-22"}
    """
    expect(x, loans={"L-601": {"due": "2025-03-19", "renewals": 1}})


def test_no_second_renewal_of_a_film(x: TestContext, judge: Judge):
    """!
    query: Could I have Harvest Moon for one more week? Member id M-344.
    user_context: |
      You are Tomas Riva. You accept a no.
      - member id: M-344
      - title: Harvest Moon
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-344, name: Tomas Riva, birth_date: "1999-12-19", email: "tomas.riva@mail.test"}
        loans:
        - {id: L-611, member_id: M-344, book_id: B-21, due: "2025-03-13", renewals: 1}
    """
    # A film can be renewed once.
    expect(x, loans={"L-611": {"due": "2025-03-13", "renewals": 1}})


def test_no_renewal_while_others_wait(x: TestContext, judge: Judge):
    """!
    query: Please extend my loan of Gardens of Glass. My membership number is M-346.
    user_context: |
      You are Yasmin Haddad. You did not know that anybody else wants the book.
      - member id: M-346
      - title: Gardens of Glass
      - confirm: yes
    tags: ["kind:limit"]
    init:
      library:
        members:
        - {id: M-346, name: Yasmin Haddad, birth_date: "1985-05-29", email: "yasmin.haddad@mail.test"}
        - {id: M-347, name: Oscar Lindt, birth_date: "1993-02-14", email: "oscar.lindt@mail.test"}
        loans:
        - {id: L-621, member_id: M-346, book_id: B-12, due: "2025-03-16"}
        holds:
        - {id: H-701, member_id: M-347, book_id: B-12, branch: Harbor}
    """
    # Another member has a hold on it.
    expect(x, loans={"L-621": {"due": "2025-03-16"}}, holds={"H-701": {"branch": "Harbor"}})


def test_renew_two_and_leave_the_third(x: TestContext, judge: Judge):
    """!
    query: I am going on a trip. Please renew everything I have on loan. Member M-349.
    user_context: |
      You are Kofi Mensah. If something cannot be renewed, you will bring it back.
      - member id: M-349
      - confirm: yes
    tags: ["kind:several"]
    init:
      library:
        members:
        - {id: M-349, name: Kofi Mensah, birth_date: "1983-03-21", email: "kofi.mensah@mail.test"}
        - {id: M-350, name: Lucia Ferri, birth_date: "1996-06-06", email: "lucia.ferri@mail.test"}
        loans:
        - {id: L-631, member_id: M-349, book_id: B-11, due: "2025-03-18", renewals: 1}
        - {id: L-632, member_id: M-349, book_id: B-15, due: "2025-03-18"}
        - {id: L-633, member_id: M-349, book_id: B-13, due: "2025-03-11"}
        holds:
        - {id: H-721, member_id: M-350, book_id: B-15, branch: Northside}
    """
    expect(x, loans={"L-631": {"due": "2025-04-01", "renewals": 2}, "L-633": {"due": "2025-03-25", "renewals": 1}})


def test_lost_dog_charged_after_a_yes(x: TestContext, judge: Judge):
    """!
    query: I am afraid I lost The Clockmaker's Dog on the train. I am member M-314.
    user_context: |
      You are Nadia Roth. You are ready to pay for the book.
      - member id: M-314
      - title: The Clockmaker's Dog
      - confirm: yes
    tags: ["kind:write"]
    init:
      library:
        members:
        - {id: M-314, name: Nadia Roth, birth_date: "1994-09-09", email: "nadia.roth@mail.test", fines: 3}
        loans:
        - {id: L-551, member_id: M-314, book_id: B-14, due: "2025-03-21"}
        - {id: L-552, member_id: M-314, book_id: B-16, due: "2025-03-21"}
    """
    expect(x, loans={"L-551": {"status": "lost"}}, members={"M-314": {"fines": 21}})


def test_explain_why_the_clockmaker_stays_due(x: TestContext, judge: Judge):
    """!
    query: Why could I not renew The Clockmaker's Dog online? Please renew it for me. My id is M-374.
    user_context: |
      You are Bernd Acker. You are a little annoyed and want a clear reason.
      - member id: M-374
      - title: The Clockmaker's Dog
      - confirm: yes
    tags: ["kind:judged"]
    init:
      library:
        members:
        - {id: M-374, name: Bernd Acker, birth_date: "1959-05-13", email: "bernd.acker@mail.test"}
        - {id: M-375, name: Lily Chan, birth_date: "2003-03-13", email: "lily.chan@mail.test"}
        loans:
        - {id: L-681, member_id: M-374, book_id: B-14, due: "2025-03-12"}
        holds:
        - {id: H-791, member_id: M-375, book_id: B-14, branch: Central}
    """
    # Another member waits for it; the reason has to be given.
    expect(x, loans={"L-681": {"due": "2025-03-12"}})
    assert judge.text_yesno(x.response, "Does the message say that another member is waiting for the book?")
