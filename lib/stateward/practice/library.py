"""The city library: loans, holds, fines, and rules that stand in policy articles."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import date
from typing import Any, Literal

from stateward.practice.desk import Desk, Refusal, tool
from stateward.practice.policy_search import PolicySearch, open_search

_log = logging.getLogger(__name__)

Branch = Literal["Central", "Harbor", "Northside"]
BRANCHES = ("Central", "Harbor", "Northside")
ARTICLES_PER_SEARCH = 2


class LibraryDesk(Desk):
    """Configuration: ``articles`` (id, title, text), ``books`` (id, title, author, kind, price), ``members`` (id, name,
    birth_date, email, card, fines, head_librarian), ``loans`` (id, member_id, book_id, due, renewals, status) and
    ``holds`` (id, member_id, book_id, branch). Dates are ``YYYY-MM-DD``; `head_librarian` is the answer to a request
    to waive fines. The result of `init` names what searches the articles."""

    ddl = """
        CREATE TABLE articles (id TEXT PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL);
        CREATE TABLE books (
            id TEXT PRIMARY KEY,
            title TEXT NOT NULL,
            author TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('book', 'film', 'reference')),
            price INTEGER NOT NULL
        );
        CREATE TABLE members (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            birth_date TEXT NOT NULL,
            email TEXT NOT NULL,
            card TEXT NOT NULL DEFAULT 'active' CHECK (card IN ('active', 'suspended')),
            fines INTEGER NOT NULL DEFAULT 0,
            waiver TEXT NOT NULL DEFAULT '' CHECK (waiver IN ('', 'approved', 'denied')),
            head_librarian TEXT NOT NULL DEFAULT 'approved' CHECK (head_librarian IN ('approved', 'denied'))
        );
        CREATE TABLE loans (
            id TEXT PRIMARY KEY,
            member_id TEXT NOT NULL REFERENCES members (id),
            book_id TEXT NOT NULL REFERENCES books (id),
            due TEXT NOT NULL,
            renewals INTEGER NOT NULL DEFAULT 0,
            status TEXT NOT NULL DEFAULT 'out' CHECK (status IN ('out', 'returned', 'lost'))
        );
        CREATE TABLE holds (
            id TEXT PRIMARY KEY,
            member_id TEXT NOT NULL REFERENCES members (id),
            book_id TEXT NOT NULL REFERENCES books (id),
            branch TEXT NOT NULL CHECK (branch IN ('Central', 'Harbor', 'Northside'))
        );
    """
    _search: PolicySearch | None = None

    def init(self, config: Mapping[str, Any]) -> dict[str, Any]:
        self.close()
        result = super().init(config)
        self._search = open_search(self.database.rows("SELECT id, title, text FROM articles"))
        _log.info("policy articles are searched by: %s", self._search.backend)
        return {**result, "policy_search": self._search.backend}

    def close(self) -> None:
        super().close()
        if self._search is not None:
            self._search.close()
            self._search = None

    def _row(self, table: str, key: str) -> dict[str, Any]:
        row = self.database.row(f"SELECT * FROM {table} WHERE id = ?", key)
        if row is None:
            raise Refusal(f"no {table.removesuffix('s')} {key}")
        return row

    @tool
    def search_policy(self, query: str) -> dict[str, Any]:
        """Search the library's policy articles. Returns the best two: title and text."""
        if self._search is None:
            raise RuntimeError("search_policy before init")
        rows = [self._row("articles", key) for key in self._search.search(query, ARTICLES_PER_SEARCH)]
        return {row["title"]: row["text"] for row in rows}

    @tool
    def search_books(self, text: str) -> dict[str, Any]:
        """Find titles by a part of the title or the author's name."""
        pattern = f"%{text.strip()}%"
        rows = self.database.rows(
            "SELECT * FROM books WHERE title LIKE ? OR author LIKE ? ORDER BY id LIMIT 10", pattern, pattern
        )
        return {row["id"]: f"{row['title']} by {row['author']} ({row['kind']})" for row in rows}

    @tool
    def get_account(self, member_id: str) -> dict[str, Any]:
        """Show a member: name, email, card, fines in dollars, loans that are out, and holds."""
        member = self._row("members", member_id)
        loans = self.database.rows(
            "SELECT loans.id, book_id, title, kind, due, renewals, "
            "(SELECT count(*) FROM holds WHERE holds.book_id = loans.book_id AND holds.member_id != loans.member_id) "
            "AS holds_of_others "
            "FROM loans JOIN books ON books.id = book_id WHERE member_id = ? AND status = 'out' ORDER BY loans.id",
            member_id,
        )
        holds = self.database.rows(
            "SELECT holds.id, book_id, title, branch FROM holds JOIN books ON books.id = book_id "
            "WHERE member_id = ? ORDER BY holds.id",
            member_id,
        )
        return {
            "member_id": member_id,
            **{key: member[key] for key in ("name", "email", "card", "fines")},
            "loans": {row.pop("id"): row for row in loans},
            "holds": {row.pop("id"): row for row in holds},
        }

    @tool
    def check_birth_date(self, member_id: str, birth_date: str) -> dict[str, Any]:
        """Compare a birth date (YYYY-MM-DD) that the member told you with the one on file."""
        return {"member_id": member_id, "match": self._row("members", member_id)["birth_date"] == birth_date.strip()}

    @tool
    def renew_loan(self, loan_id: str, new_due_date: str) -> dict[str, Any]:
        """Renew a loan until a new due date (YYYY-MM-DD)."""
        loan = self._row("loans", loan_id)
        try:
            day = date.fromisoformat(new_due_date.strip()).isoformat()
        except ValueError:
            raise Refusal("the date must be written YYYY-MM-DD") from None
        if loan["status"] != "out":
            raise Refusal(f"loan {loan_id} is {loan['status']}")
        self.database.execute("UPDATE loans SET due = ?, renewals = renewals + 1 WHERE id = ?", day, loan_id)
        return {"loan_id": loan_id, "due": day, "renewals": loan["renewals"] + 1}

    @tool
    def place_hold(self, member_id: str, book_id: str, branch: Branch) -> dict[str, Any]:
        """Place a hold on a title, to be picked up at a branch."""
        self._row("members", member_id)
        self._row("books", book_id)
        if branch not in BRANCHES:
            raise Refusal(f"the branches are: {', '.join(BRANCHES)}")
        last = self.database.row("SELECT max(CAST(substr(id, 3) AS INTEGER)) AS n FROM holds")
        hold_id = f"H-{((last or {}).get('n') or 700) + 1}"
        self.database.execute("INSERT INTO holds VALUES (?, ?, ?, ?)", hold_id, member_id, book_id, branch)
        return {"hold_id": hold_id, "member_id": member_id, "book_id": book_id, "branch": branch}

    @tool
    def cancel_hold(self, hold_id: str) -> dict[str, Any]:
        """Remove a hold."""
        self._row("holds", hold_id)
        self.database.execute("DELETE FROM holds WHERE id = ?", hold_id)
        return {"hold_id": hold_id, "cancelled": True}

    @tool
    def request_waiver(self, member_id: str) -> dict[str, Any]:
        """Ask the head librarian to approve waiving a member's fines: approved or denied."""
        answer = self._row("members", member_id)["head_librarian"]
        self.database.execute("UPDATE members SET waiver = ? WHERE id = ?", answer, member_id)
        return {"member_id": member_id, "waiver": answer}

    @tool
    def waive_fines(self, member_id: str, amount: int) -> dict[str, Any]:
        """Take an amount in dollars off a member's fines."""
        fines = self._row("members", member_id)["fines"]
        if not 0 < amount <= fines:
            raise Refusal(f"the amount must be between 1 and the fines, {fines} dollars")
        self.database.execute("UPDATE members SET fines = fines - ? WHERE id = ?", amount, member_id)
        return {"member_id": member_id, "fines": fines - amount}

    @tool
    def report_lost(self, loan_id: str) -> dict[str, Any]:
        """Record that a loan is lost. The replacement price is added to the member's fines."""
        loan = self._row("loans", loan_id)
        if loan["status"] != "out":
            raise Refusal(f"loan {loan_id} is {loan['status']}")
        price = self._row("books", loan["book_id"])["price"]
        self.database.execute("UPDATE loans SET status = 'lost' WHERE id = ?", loan_id)
        self.database.execute("UPDATE members SET fines = fines + ? WHERE id = ?", price, loan["member_id"])
        return {"loan_id": loan_id, "status": "lost", "charged": price}

    @tool
    def change_email(self, member_id: str, email: str) -> dict[str, Any]:
        """Set a member's email address."""
        self._row("members", member_id)
        self.database.execute("UPDATE members SET email = ? WHERE id = ?", email.strip(), member_id)
        return {"member_id": member_id, "email": email.strip()}
