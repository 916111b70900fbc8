// Shows a Bokeh document that lives in the kernel and exchanges Bokeh's document patches with it.

// The next message of a kind; `fits` picks among several views of one model.
function next(model, kind, fits = () => true) {
  return new Promise((resolve) => {
    const listener = (message, buffers) => {
      if (message.kind !== kind || !fits(message)) return;
      model.off("msg:custom", listener);
      resolve([message, buffers]);
    };
    model.on("msg:custom", listener);
  });
}

function run(text) {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
  script.remove();
}

// BokehJS, asked from the kernel once a page and version.
async function library(model) {
  const version = model.get("bokeh_version"), key = `__msprobe_nb_bokeh_${version}`;
  if (window.Bokeh?.version === version) return window.Bokeh;
  window[key] ??= (async () => {
    const answer = next(model, "scripts");
    model.send({ kind: "scripts" });
    const [, buffers] = await answer;
    const decoder = new TextDecoder();
    for (const buffer of buffers) run(decoder.decode(buffer));
    return window.Bokeh;
  })();
  return window[key];
}

// What of a figure follows the notebook's theme, by type of model: [property, light, dark].
const INK = ["#444444", "#c8ccd2"], LINE = ["#c8c8c8", "#4a4f57"], GRID = ["#e5e5e5", "#33373d"];
const THEMED = {
  Figure: [["outline_line_color", ...LINE]],
  Axis: [
    ["axis_line_color", ...LINE], ["major_tick_line_color", ...LINE], ["minor_tick_line_color", ...LINE],
    ["major_label_text_color", ...INK], ["axis_label_text_color", ...INK],
  ],
  Grid: [["grid_line_color", ...GRID]],
  Title: [["text_color", ...INK]],
  Legend: [["label_text_color", ...INK], ["background_fill_color", "#ffffff", "#22252b"], ["border_line_color", ...LINE]],
  ColorBar: [
    ["major_label_text_color", ...INK], ["major_tick_line_color", ...LINE],
  ],
};

function isDark() {
  const lab = document.body?.dataset.jpThemeLight;
  return lab ? lab === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function paint(doc, dark) {
  for (const model of doc._all_models.values()) {
    const kind = Object.keys(THEMED).find((name) => model.type.endsWith(name));
    const values = (THEMED[kind] ?? []).map(([name, light, night]) => [name, dark ? night : light]);
    if (values.length) model.setv(Object.fromEntries(values), { sync: false });
  }
}

// BokehJS can only draw into an element that stands in the page.
async function inPage(node, gone) {
  while (!node.isConnected && !gone.is) await new Promise((go) => setTimeout(go, 40));
  return !gone.is;
}

async function start(model, el, gone) {
  const Bokeh = await library(model), view = crypto.randomUUID?.() ?? String(Math.random());
  // Patches are kept from before the document is asked for, and those that came before it dropped:
  // it includes them. So none is lost while BokehJS still builds the figure.
  let doc = null, waiting = [], applying = false;
  const apply = (patch, buffers) => {
    const cut = (b) => b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength);
    const parts = new Map(patch.ids.map((id, at) => [id, cut(buffers[at])]));
    applying = true;
    try { doc.apply_json_patch(JSON.parse(patch.content), parts); } finally { applying = false; }
  };
  const receive = (patch, buffers) => {
    if (patch.kind === "document" && patch.view === view) waiting = [];
    if (patch.kind !== "patch") return;
    if (doc) apply(patch, buffers); else waiting.push([patch, buffers]);
  };
  model.on("msg:custom", receive);
  const answer = next(model, "document", (message) => message.view === view);
  model.send({ kind: "document", view });
  const [message] = await answer;
  const documents = JSON.parse(message.documents), item = JSON.parse(message.item);
  const [rootId] = Object.keys(item.roots), [docJson] = Object.values(documents);
  const target = document.createElement("div");
  target.id = `${item.roots[rootId]}-${view}`;
  el.append(target);
  if (!(await inPage(target, gone))) return model.off("msg:custom", receive);
  const views = await Bokeh.embed.embed_item({ doc: docJson, root_id: rootId, target_id: target.id });
  doc = views.roots[0].model.document;
  for (const [patch, buffers] of waiting.splice(0)) apply(patch, buffers);
  const send = (event) => {
    if (!applying && event.sync !== false) model.send({ kind: "patch", content: doc.create_json_patch([event]), ids: [] });
  };
  const theme = () => {
    applying = true;
    try { paint(doc, isDark()); } finally { applying = false; }
  };
  theme();
  doc.on_change(send);
  const observer = new MutationObserver(theme);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  gone.clean = () => {
    observer.disconnect();
    model.off("msg:custom", receive);
    doc.remove_on_change(send);
    views.clear?.();
  };
  if (gone.is) gone.clean();
}

function render({ model, el }) {
  const gone = { is: false, clean: null };
  void start(model, el, gone);
  return () => {
    gone.is = true;
    gone.clean?.();
  };
}

export default { render };
