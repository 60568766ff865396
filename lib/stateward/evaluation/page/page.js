"use strict";
// The page's tables and charts are plain HTML; this opens tasks, trials and conversations. All text goes in through
// textContent, so that nothing a model or a tool wrote can become markup.
(() => {
  const make = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const inflate = async (id) => {
    const text = document.getElementById(id).textContent;
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };
  const cache = new Map();
  const load = (id) => {
    if (!cache.has(id)) cache.set(id, inflate(id));
    return cache.get(id);
  };
  const count = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");
  const WORD = { p: "pass", f: "fail", v: "void" };
  const MARK = { p: "✓", f: "✗", v: "○" };

  // ---- one conversation ----------------------------------------------------------------------------------------
  const CUT = /⟪… [\d,]+ characters …⟫/;
  const body = (text, kind) => {
    const pre = make("pre", kind ? { class: kind } : {});
    const at = CUT.exec(text);
    if (!at) { pre.append(text); return pre; }
    pre.append(text.slice(0, at.index), make("span", { class: "cut" }, at[0]), text.slice(at.index + at[0].length));
    return pre;
  };
  const message = (m, pool) => {
    const role = { s: "system", u: "user", a: "assistant", t: "tool" }[m[0]] || m[0];
    const who = make("div", { class: "who" }, role, ...(m[4] ? [make("span", {}, m[4])] : []));
    const says = make("div", { class: "says" });
    if (m[2] !== null) {
      const think = make("details", {}, make("summary", { class: "think" }, "reasoning"));
      think.append(body(pool[m[2]], "think prose"));
      says.append(think);
    }
    if (m[1] !== null) {
      const said = body(pool[m[1]], role === "tool" ? "" : "prose");
      // Every trial of a task begins with the same instructions; they open on demand.
      if (role === "system") says.append(make("details", {}, make("summary", {}, "instructions, " + pool[m[1]].length.toLocaleString("en") + " characters"), said));
      else says.append(said);
    }
    if (role === "tool" && m[1] === null) says.append(make("span", { class: "think" }, "(empty)"));
    for (const [name, args] of m[3] || []) says.append(body("→ " + name + "(" + pool[args] + ")", "call"));
    return make("li", { class: "msg " + role }, who, says);
  };
  const differenceTable = (rows, more) => {
    const table = make("table", { class: "diff" });
    table.append(make("caption", {}, "Final state against initial state" + (more ? " (" + more + " more rows not shown)" : "")));
    table.append(make("thead", {}, make("tr", {}, ...["path", "before", "after"].map((t) => make("th", { scope: "col" }, t)))));
    const rest = make("tbody");
    for (const [path, before, after] of rows)
      rest.append(make("tr", {}, make("th", { scope: "row" }, path), make("td", { class: "minus" }, before), make("td", { class: "plus" }, after)));
    table.append(rest);
    return rows.length ? table : make("p", { class: "faint" }, "The state did not change.");
  };
  const episode = async (task, data, run, n) => {
    const facts = data.facts[run][n];
    const [index, outcome, turns, calls, tokens, seconds, finish, attempt] = facts;
    let talk = data.talks.find((t) => t.r === run && t.i === index);
    let pool = data.pool;
    const whole = document.getElementById("w" + task + "-" + run + "-" + index);
    if (whole) { const full = await load(whole.id); talk = full.talks[0]; pool = full.pool; }
    const box = make("article", { class: "episode", tabindex: "-1", "aria-label": data.runs[run] + " trial " + index + ", " + WORD[outcome] });
    box.append(make("h4", {}, data.runs[run] + ", trial " + index + ": ", make("span", { class: WORD[outcome] }, MARK[outcome] + " " + WORD[outcome])));
    box.append(make("p", { class: "faint" }, count(turns, "turn") + ", " + count(calls, "tool call") + ", " + count(tokens, "completion token") + ", " + seconds + " s; ended: " + finish + (attempt > 1 ? "; attempt " + attempt : "")));
    if (!talk) { box.append(make("p", {}, "No conversation is stored.")); return box; }
    if (talk.x) box.append(make("h5", {}, "System fault"), body(talk.x));
    if (talk.f) box.append(make("div", { class: "failure" }, make("h5", {}, "The check failed at " + talk.f[0]), body(talk.f[1], "fail"), body(talk.f[2])));
    box.append(differenceTable(talk.d, talk.dn));
    const list = make("ol", { "aria-label": "conversation" });
    // An outline has no results, so that a tool's empty message would say nothing.
    const outline = !whole && data.cut === "outline";
    for (const m of talk.m) if (!(outline && m[0] === "t")) list.append(message(m, pool));
    if (!whole && data.cut) box.append(make("p", { class: "faint" }, (data.cut === "full" ? "Long texts are shortened" : "Only the course of the conversation is kept") + " here, to keep this page small. Whole: python jobs/report.py " + data.dir + " --trial " + data.uid + ":" + index + ", or a page of this task with --task " + data.uid));
    box.append(list);
    return box;
  };

  // ---- one task ------------------------------------------------------------------------------------------------
  const strip = (data, run, choose) => {
    const row = make("div", { class: "run", role: "group", "aria-label": data.runs[run] + " trials" }, make("span", {}, data.runs[run]));
    data.facts[run].forEach((facts, n) => {
      const button = make("button", { class: "trial " + WORD[facts[1]], type: "button", "aria-pressed": "false", tabindex: n ? "-1" : "0", "aria-label": data.runs[run] + " trial " + facts[0] + ", " + WORD[facts[1]] }, MARK[facts[1]] + facts[0]);
      button.addEventListener("click", () => choose(run, n, button));
      row.append(button);
    });
    // Arrow keys move inside the strip, so that Tab passes it in one step.
    row.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = [...row.querySelectorAll("button")];
      const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
      all.forEach((b) => (b.tabIndex = b === next ? 0 : -1));
      next.focus();
      event.preventDefault();
    });
    return row;
  };
  const openTask = async (button, wanted) => {
    const row = button.closest("tr");
    const task = row.dataset.task;
    if (button.getAttribute("aria-expanded") === "true" && !wanted) {
      row.nextElementSibling.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    const data = await load("t" + task);
    if (button.getAttribute("aria-expanded") !== "true") {
      const cell = make("td", { colspan: String(row.children.length) });
      row.after(make("tr", { class: "opened" }, cell));
      button.setAttribute("aria-expanded", "true");
      data.runs.forEach((_, run) => cell.append(strip(data, run, choose)));
      cell.append(make("div", { class: "place" }));
    }
    const place = row.nextElementSibling.querySelector(".place");
    async function choose(run, n, pressed) {
      const box = await episode(task, data, run, n);
      place.replaceChildren(box);
      for (const b of place.parentElement.querySelectorAll(".trial")) b.setAttribute("aria-pressed", String(b === pressed));
      history.replaceState(null, "", "#" + encodeURIComponent(data.uid) + "/" + encodeURIComponent(data.runs[run]) + "/" + data.facts[run][n][0]);
      // The strip of trials stays above what it opened; a long conversation is read from its beginning.
      box.focus({ preventScroll: true });
      const top = box.getBoundingClientRect().top;
      if (wanted || top < 60 || top > innerHeight - 120) row.scrollIntoView({ block: "start" });
    }
    if (wanted) {
      const run = data.runs.indexOf(wanted[0]);
      const n = run < 0 ? -1 : data.facts[run].findIndex((f) => String(f[0]) === wanted[1]);
      if (n >= 0) await choose(run, n, row.nextElementSibling.querySelectorAll(".run")[run].querySelectorAll("button")[n]);
    }
  };

  // ---- the list of tasks ---------------------------------------------------------------------------------------
  const table = document.getElementById("task-list");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const text = document.getElementById("filter"), domain = document.getElementById("domain"), change = document.getElementById("change");
  const closeAll = () => {
    for (const row of table.querySelectorAll(".opened")) row.remove();
    for (const b of table.querySelectorAll(".open")) b.setAttribute("aria-expanded", "false");
  };
  const refine = () => {
    closeAll();
    let shown = 0;
    for (const row of rows) {
      const fits = row.dataset.uid.toLowerCase().includes(text.value.toLowerCase()) && (!domain.value || row.dataset.domain === domain.value) && (!change.value || row.dataset.change.split(" ").includes(change.value));
      row.hidden = !fits;
      shown += fits;
    }
    document.getElementById("count").textContent = shown + " of " + rows.length + " tasks";
  };
  for (const control of [text, domain, change]) control.addEventListener("input", refine);
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    closeAll();
    const head = button.closest("th"), at = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const th of table.tHead.rows[0].cells) th.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => { const v = row.cells[at].dataset.v; return v === undefined ? row.cells[at].textContent : Number(v); };
    rows.sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
    table.tBodies[0].append(...rows);
  });
  table.tBodies[0].addEventListener("click", (event) => {
    const button = event.target.closest(".open");
    if (button) openTask(button);
  });
  // A link such as #UID/RUN/INDEX opens that trial.
  const follow = () => {
    const [uid, run, index] = location.hash.slice(1).split("/").map(decodeURIComponent);
    const row = rows.find((r) => r.dataset.uid === uid);
    if (!row) return;
    row.hidden = false;
    openTask(row.querySelector(".open"), run === undefined ? undefined : [run, index]);
    if (run === undefined) row.scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  refine();
  follow();
  if (rows.length === 1 && !location.hash) openTask(rows[0].querySelector(".open"));
})();
