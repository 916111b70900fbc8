// The live table. Rows come from the kernel a page at a time, one binary buffer a column; every
// text is set as text, never as markup.
const ROW = 24, MAX_PIXELS = 8e6, PAGE = 100, KEPT = 60, STICKY = 2;

const make = (tag, name = "", text = "") => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text) node.textContent = text;
  return node;
};

function shown(value, kind) {
  if (Number.isNaN(value)) return "\u2013";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (kind === "integer") return String(value);
  const number = kind === "fraction" ? value * 100 : value;
  const unit = kind === "fraction" ? "%" : "";
  if (number === 0) return "0" + unit;
  const size = Math.abs(number);
  if (size >= 1e-3 && size < 1e7) return String(Number(number.toPrecision(6))) + unit;
  return number.toExponential(3) + unit;
}

class Grid {
  constructor(model, el) {
    this.model = model;
    this.pages = new Map();
    this.asked = new Set();
    this.cursor = -1;
    this.widths = new Map(model.get("columns").map((c) => [c.name, c.width]));
    this.build(el);
    this.listeners = {
      "msg:custom": (message, buffers) => this.receive(message, buffers),
      "change:version": () => this.reset(),
      "change:visible": () => this.reset(),
      "change:selected": () => this.paint(),
      "change:reveal": () => this.reveal(),
      "change:faults": () => this.header(),
      "change:message": () => this.note(),
      "change:choices": () => this.toolbar(),
    };
    for (const [name, listener] of Object.entries(this.listeners)) model.on(name, listener);
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.scroll);
    this.toolbar();
    this.header();
    this.note();
    this.draw();
    this.reveal();
  }

  build(el) {
    this.root = make("div", "msnb-grid");
    this.root.dataset.lmSuppressShortcuts = "true";
    this.bar = make("div", "msnb-bar");
    this.scroll = make("div", "msnb-scroll");
    this.scroll.tabIndex = 0;
    this.scroll.style.height = this.model.get("height") + "px";
    this.scroll.setAttribute("role", "grid");
    this.scroll.setAttribute("aria-label", "comparison rows");
    this.head = make("div", "msnb-head");
    this.head.setAttribute("role", "row");
    this.body = make("div", "msnb-body");
    this.foot = make("div", "msnb-note");
    this.scroll.append(this.head, this.body);
    this.root.append(this.bar, this.scroll, this.foot);
    el.append(this.root);
    this.scroll.onscroll = () => this.paint();
    this.scroll.onkeydown = (event) => this.key(event);
  }

  destroy() {
    for (const [name, listener] of Object.entries(this.listeners)) this.model.off(name, listener);
    this.observer.disconnect();
    this.root.remove();
  }

  set(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
  }

  columns() {
    const all = new Map(this.model.get("columns").map((c) => [c.name, c]));
    return this.model.get("visible").map((name) => all.get(name)).filter(Boolean);
  }

  // ---------------------------------------------------------------- tool bar

  toolbar() {
    const choices = this.model.get("choices"), mark = this.model.get("mark");
    const picked = choices[mark] || [];
    this.bar.replaceChildren();
    for (const entry of this.model.get("legend")) {
      const chip = make("button", "msnb-chip");
      const symbol = make("i", "msnb-sym-" + entry.value.replace(" ", "-"), entry.symbol);
      chip.append(symbol, entry.text, make("b", "", entry.count.toLocaleString("en")));
      chip.title = `show only rows marked "${entry.text}"; click again to show all`;
      chip.setAttribute("aria-pressed", picked.includes(entry.value));
      chip.onclick = () => {
        const next = picked.includes(entry.value)
          ? picked.filter((v) => v !== entry.value) : [...picked, entry.value];
        this.set("choices", { ...choices, [mark]: next });
      };
      this.bar.append(chip);
    }
    for (const selector of this.model.get("selectors")) this.bar.append(this.selector(selector));
    this.info = make("span", "msnb-info");
    this.bar.append(make("span", "msnb-space"), this.info);
    this.button("Clear", "remove all filters and sorting", () => {
      for (const name of ["filters", "choices"]) this.model.set(name, {});
      this.set("sort", []);
      this.toolbar();
      this.header();
    });
    this.button("Columns", "choose the columns", () => this.chooser());
    this.button("Export", "write the filtered rows to a csv file", () => this.model.send({ kind: "export" }));
    this.count();
  }

  button(text, title, action) {
    const button = make("button", "", text);
    button.title = title;
    button.onclick = action;
    this.bar.append(button);
  }

  selector({ name, values }) {
    const select = make("select");
    select.setAttribute("aria-label", name);
    select.append(new Option(`all ${name}s`, ""), ...values.map((v) => new Option(`${name} ${v}`, "=" + v)));
    select.value = this.model.get("filters")[name] || "";
    select.onchange = () => this.filter(name, select.value);
    return select;
  }

  chooser() {
    const open = this.root.querySelector(".msnb-menu");
    if (open) return open.remove();
    const menu = make("div", "msnb-menu");
    for (const column of this.model.get("columns")) {
      const label = make("label"), box = make("input");
      box.type = "checkbox";
      box.checked = this.model.get("visible").includes(column.name);
      box.onchange = () => {
        const on = new Set(this.model.get("visible"));
        box.checked ? on.add(column.name) : on.delete(column.name);
        this.set("visible", this.model.get("columns").map((c) => c.name).filter((n) => on.has(n)));
      };
      label.append(box, column.name);
      label.title = column.help;
      menu.append(label);
    }
    this.root.append(menu);
    const close = (event) => {
      if (menu.contains(event.target) || event.target.textContent === "Columns") return;
      menu.remove();
      document.removeEventListener("pointerdown", close);
    };
    document.addEventListener("pointerdown", close);
  }

  count() {
    const total = this.model.get("total"), all = this.model.get("all_rows");
    const chosen = this.model.get("selected").length;
    const rows = total === all ? `${all.toLocaleString("en")} rows`
      : `${total.toLocaleString("en")} of ${all.toLocaleString("en")} rows`;
    this.info.textContent = chosen > 1 ? `${rows}, ${chosen} selected` : rows;
  }

  note() {
    this.foot.textContent = this.model.get("message");
    this.foot.hidden = !this.foot.textContent;
  }

  // ---------------------------------------------------------------- header

  filter(name, text) {
    if (text === (this.model.get("filters")[name] || "")) return;
    this.set("filters", { ...this.model.get("filters"), [name]: text });
  }

  header() {
    const sort = this.model.get("sort"), filters = this.model.get("filters");
    const faults = this.model.get("faults");
    const focus = this.head.contains(document.activeElement) && document.activeElement.dataset.name;
    this.head.replaceChildren();
    this.columns().forEach((column, at) => {
      const cell = this.cell(column, at), title = make("div", "msnb-title");
      const key = sort.find((entry) => entry[0] === column.name);
      cell.setAttribute("role", "columnheader");
      cell.setAttribute("aria-sort", key ? (key[1] === "asc" ? "ascending" : "descending") : "none");
      title.append(make("span", "", column.name), make("em", "", key ? (key[1] === "asc" ? "\u25b4" : "\u25be") : ""));
      title.title = `${column.help || column.name}\nclick to sort, shift-click to sort by several`;
      title.onclick = (event) => this.sortBy(column.name, key, event.shiftKey);
      const box = make("input");
      box.value = filters[column.name] || "";
      box.placeholder = column.kind === "text" ? "contains" : "> 1e-3";
      box.title = faults[column.name] || this.model.get("filter_help");
      box.classList.toggle("msnb-fault", column.name in faults);
      box.dataset.name = column.name;
      box.setAttribute("aria-label", `filter ${column.name}`);
      box.onchange = () => this.filter(column.name, box.value);
      box.onkeydown = (event) => {
        event.stopPropagation();
        if (event.key === "Enter") this.filter(column.name, box.value);
      };
      cell.append(title, box, this.grip(column));
      this.head.append(cell);
      if (focus === column.name) box.focus();
    });
  }

  sortBy(name, key, add) {
    const others = add ? this.model.get("sort").filter((entry) => entry[0] !== name) : [];
    const next = !key ? "desc" : key[1] === "desc" ? "asc" : null;
    this.set("sort", next ? [...others, [name, next]] : others);
  }

  grip(column) {
    const grip = make("div", "msnb-grip");
    grip.onpointerdown = (event) => {
      event.preventDefault();
      const from = event.clientX, width = this.widths.get(column.name);
      const move = (now) => {
        this.widths.set(column.name, Math.max(40, width + now.clientX - from));
        this.header();
        this.paint();
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
    };
    return grip;
  }

  cell(column, at) {
    const cell = make("div", "msnb-cell");
    cell.style.width = this.widths.get(column.name) + "px";
    if (at < STICKY) {
      cell.classList.add("msnb-stick");
      const before = this.columns().slice(0, at).map((c) => this.widths.get(c.name));
      cell.style.left = before.reduce((a, b) => a + b, 0) + "px";
    }
    return cell;
  }

  // ---------------------------------------------------------------- rows

  reset() {
    this.pages.clear();
    this.asked.clear();
    this.cursor = -1;
    this.scroll.scrollTop = 0;
    this.header();
    this.toolbar();
    this.paint();
  }

  ask(page) {
    if (this.asked.has(page) || this.pages.has(page)) return;
    this.asked.add(page);
    const names = this.columns().map((c) => c.name), mark = this.model.get("mark");
    if (mark && !names.includes(mark)) names.push(mark);
    this.model.send({
      kind: "rows", id: this.model.get("version"), columns: names,
      start: page * PAGE, stop: Math.min(this.model.get("total"), (page + 1) * PAGE),
    });
  }

  receive(message, buffers) {
    if (message.kind !== "rows" || message.id !== this.model.get("version")) return;
    const copy = (view, Type) => new Type(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    const page = { labels: copy(buffers[0], Int32Array), columns: new Map() };
    let next = 1;
    message.columns.forEach((name, at) => {
      page.columns.set(name, message.text[at] ?? copy(buffers[next++], Float64Array));
    });
    const number = message.start / PAGE;
    this.pages.set(number, page);
    this.asked.delete(number);
    if (this.pages.size > KEPT) this.pages.delete(this.pages.keys().next().value);
    this.paint();
  }

  paint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  // The browser limits an element's height, so the scroll range of a long table is compressed.
  range() {
    const full = this.model.get("total") * ROW, height = Math.min(full, MAX_PIXELS);
    const room = Math.max(0, this.scroll.clientHeight - this.head.offsetHeight);
    const stretch = height > room ? Math.max(0, full - room) / Math.max(1, height - room) : 1;
    return { height, room, first: (this.scroll.scrollTop * stretch) / ROW, stretch };
  }

  draw() {
    const { height, room, first } = this.range(), total = this.model.get("total");
    this.count();
    this.body.style.height = Math.max(height, total ? 0 : 80) + "px";
    this.scroll.setAttribute("aria-rowcount", total);
    const from = Math.floor(first), to = Math.min(total, from + Math.ceil(room / ROW) + 1);
    for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) this.ask(page);
    const rows = [];
    for (let at = from; at < to; at++) rows.push(this.row(at, first));
    if (!total) rows.push(make("div", "msnb-empty", "No row passes the filters."));
    this.body.replaceChildren(...rows);
  }

  row(at, first) {
    const row = make("div", "msnb-row"), page = this.pages.get(Math.floor(at / PAGE));
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", at + 1);
    row.style.top = this.scroll.scrollTop + (at - first) * ROW + "px";
    if (!page) return row;
    const here = at % PAGE, label = page.labels[here], mark = this.model.get("mark");
    if (mark) row.dataset.mark = page.columns.get(mark)?.[here] ?? "";
    row.setAttribute("aria-selected", this.model.get("selected").includes(label));
    this.columns().forEach((column, place) => {
      const cell = this.cell(column, place), value = page.columns.get(column.name)?.[here];
      cell.setAttribute("role", "gridcell");
      if (column.kind === "text") this.text(cell, column, value ?? "");
      else if (value !== undefined) this.number(cell, column, value);
      row.append(cell);
    });
    row.onclick = (event) => this.select(at, label, event);
    return row;
  }

  text(cell, column, value) {
    if (column.name === this.model.get("mark")) {
      const entry = this.model.get("legend").find((item) => item.value === value);
      cell.append(make("i", "msnb-sym-" + value.replace(" ", "-"), entry ? entry.symbol + " " : ""));
    }
    cell.append(value);
    cell.title = value;
  }

  number(cell, column, value) {
    cell.classList.add("msnb-num");
    if (Number.isNaN(value)) cell.classList.add("msnb-none");
    else if (!Number.isFinite(value)) cell.classList.add("msnb-odd");
    cell.textContent = shown(value, column.kind);
    cell.title = String(value);
  }

  select(at, label, event) {
    const now = this.model.get("selected");
    this.cursor = at;
    const more = event.ctrlKey || event.metaKey;
    this.set("selected", !more ? [label] : now.includes(label) ? now.filter((x) => x !== label) : [...now, label]);
    this.scroll.focus({ preventScroll: true });
    this.paint();
  }

  // Scroll to a row that was selected elsewhere.
  reveal() {
    const [at] = this.model.get("reveal");
    if (at === undefined || at < 0) return;
    this.cursor = at;
    const { room, stretch } = this.range(), top = (at * ROW) / stretch;
    const visible = top >= this.scroll.scrollTop && top + ROW <= this.scroll.scrollTop + room;
    if (!visible) this.scroll.scrollTop = Math.max(0, top - room / 3);
    this.paint();
  }

  key(event) {
    const { room, stretch } = this.range(), lines = Math.max(1, Math.floor(room / ROW) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: lines, PageUp: -lines, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.target !== this.scroll) return;
    event.preventDefault();
    event.stopPropagation();
    const last = this.model.get("total") - 1;
    this.cursor = Math.min(last, Math.max(0, this.cursor + step));
    const page = this.pages.get(Math.floor(this.cursor / PAGE));
    if (page) this.set("selected", [page.labels[this.cursor % PAGE]]);
    const top = (this.cursor * ROW) / stretch;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top + ROW > this.scroll.scrollTop + room) this.scroll.scrollTop = top + ROW - room;
    this.paint();
  }
}

function render({ model, el }) {
  const grid = new Grid(model, el);
  return () => grid.destroy();
}

export default { render };
