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

async function render({ model, el }) {
  const Bokeh = await library(model), view = crypto.randomUUID?.() ?? String(Math.random());
  const answer = next(model, "document", (message) => message.view === view);
  model.send({ kind: "document", view });
  const [message] = await answer;
  const documents = JSON.parse(message.documents), item = JSON.parse(message.item);
  const [rootId] = Object.keys(item.roots), [docJson] = Object.values(documents);
  const target = document.createElement("div");
  target.id = item.roots[rootId];
  el.append(target);
  const views = await Bokeh.embed.embed_item({ doc: docJson, root_id: rootId, target_id: target });
  const doc = views.roots[0].model.document;
  let applying = false;
  const send = (event) => {
    if (applying) return;
    model.send({ kind: "patch", content: doc.create_json_patch([event]), ids: [] });
  };
  const receive = (patch, buffers) => {
    if (patch.kind !== "patch") return;
    const cut = (b) => b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength);
    const parts = new Map(patch.ids.map((id, at) => [id, cut(buffers[at])]));
    applying = true;
    try { doc.apply_json_patch(JSON.parse(patch.content), parts); } finally { applying = false; }
  };
  doc.on_change(send);
  model.on("msg:custom", receive);
  return () => {
    model.off("msg:custom", receive);
    doc.remove_on_change(send);
    views.clear?.();
  };
}

export default { render };
