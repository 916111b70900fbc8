// Tool bar and column titles of the live table; grid.js goes on from here.
const STICKY = 2, TYPE_PAUSE = 350;

const make = (tag, name = "", text = "") => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text) node.textContent = text;
  return node;
};

const symbolClass = (mark) => "msnb-sym-" + mark.replaceAll(" ", "-");

class Head {
  // ---------------------------------------------------------------- tool bar

  toolbar() {
    const choices = this.model.get("choices"), mark = this.model.get("mark");
    const picked = choices[mark] || [];
    this.bar.replaceChildren();
    for (const entry of this.model.get("legend")) {
      const chip = make("button", "msnb-chip");
      const symbol = make("i", symbolClass(entry.value), entry.symbol);
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
    if (this.closeMenu) return this.closeMenu();
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
    menu.querySelector("input")?.focus();
    const outside = (event) => {
      if (!menu.contains(event.target) && event.target.textContent !== "Columns") this.closeMenu();
    };
    const escape = (event) => {
      if (event.key === "Escape") this.closeMenu();
    };
    this.closeMenu = () => {
      menu.remove();
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", escape, true);
      this.closeMenu = null;
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape, true);
  }

  count() {
    const total = this.model.get("total"), all = this.model.get("all_rows");
    const chosen = this.model.get("selected").length;
    const rows = total === all ? `${all.toLocaleString("en")} rows`
      : `${total.toLocaleString("en")} of ${all.toLocaleString("en")} rows`;
    this.info.textContent = chosen > 1 ? `${rows}, ${chosen} selected` : rows;
  }

  // Below the table: filters that were not understood, and what was done.
  note() {
    const faults = Object.entries(this.model.get("faults"));
    const lines = faults.map(([name, why]) => make("div", "msnb-fault-text", `${name}: ${why}, filter ignored`));
    const message = this.model.get("message");
    this.foot.replaceChildren(...lines, ...(message ? [make("div", "", message)] : []));
    this.foot.hidden = !this.foot.childElementCount;
  }

  faults() {
    const faults = this.model.get("faults");
    for (const box of this.head.querySelectorAll("input")) {
      box.classList.toggle("msnb-fault", box.dataset.name in faults);
      box.title = faults[box.dataset.name] || this.model.get("filter_help");
    }
    this.note();
  }

  // ---------------------------------------------------------------- header

  filter(name, text) {
    if (text === (this.model.get("filters")[name] || "")) return;
    this.set("filters", { ...this.model.get("filters"), [name]: text });
  }

  // Also while somebody types: the focus, the caret and what was typed since stay.
  header() {
    const active = this.head.contains(document.activeElement) ? document.activeElement : null;
    const held = active && {
      name: active.dataset.name, tag: active.tagName, text: active.value, from: active.selectionStart, to: active.selectionEnd,
    };
    clearTimeout(this.typing);
    this.head.replaceChildren();
    this.columns().forEach((column, at) => {
      const cell = this.cell(column, at), title = this.title(column, cell), box = this.box(column);
      cell.append(title, box, this.grip(column));
      this.head.append(cell);
      if (held?.name !== column.name) return;
      if (held.tag !== "INPUT") return title.focus({ preventScroll: true });
      box.value = held.text;
      box.focus({ preventScroll: true });
      box.setSelectionRange(held.from, held.to);
      if (held.text !== (this.model.get("filters")[column.name] || "")) box.oninput();
    });
    this.faults();
  }

  title(column, cell) {
    const key = this.model.get("sort").find((entry) => entry[0] === column.name);
    const title = make("button", "msnb-title"), up = key?.[1] === "asc";
    cell.setAttribute("role", "columnheader");
    cell.setAttribute("aria-sort", key ? (up ? "ascending" : "descending") : "none");
    title.append(make("span", "", column.name), make("em", "", key ? (up ? "\u25b4" : "\u25be") : ""));
    title.title = `${column.help || column.name}\nclick to sort, shift-click to sort by several`;
    title.dataset.name = column.name;
    title.onclick = (event) => this.sortBy(column, key, event.shiftKey);
    return title;
  }

  box(column) {
    const box = make("input"), apply = () => {
      clearTimeout(this.typing);
      this.filter(column.name, box.value);
    };
    box.value = this.model.get("filters")[column.name] || "";
    box.placeholder = column.kind === "text" ? "contains" : ">1e-3";
    box.dataset.name = column.name;
    box.setAttribute("aria-label", `filter ${column.name}`);
    box.oninput = () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(apply, TYPE_PAUSE);
    };
    box.onchange = apply;
    box.onkeydown = (event) => {
      event.stopPropagation();
      if (event.key === "Enter") apply();
    };
    return box;
  }

  // The direction that shows the worst rows first, then the other one, then none.
  sortBy({ name, first }, key, add) {
    const others = add ? this.model.get("sort").filter((entry) => entry[0] !== name) : [];
    const other = first === "desc" ? "asc" : "desc";
    const next = !key ? first : key[1] === first ? other : null;
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
}
