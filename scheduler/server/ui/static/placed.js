// -- placed pods: of a file of `kubestow simulate -o html`, and what an explained pod uses -------------------------------------

let placementPage = 0;

function showPlacements() {
  const all = embedded.simulation.placements, words = wordsOf("placed-search");
  const found = words.length ? all.filter((each) => { const text = JSON.stringify(each).toLowerCase(); return words.every((word) => text.includes(word)); }) : all;
  const {placed} = embedded.simulation;
  put($("placed-text"), `${plural(placed, "pod")} placed.${placed > all.length ? ` The file has ${number(all.length)} of them; kubestow simulate -o json prints all.` : ""} A pod opens with its volumes, its devices, and the scores of its node.`);
  const page = pageOf(found, placementPage);
  placementPage = page.page;
  const parts = listing($("placements"), plural(found.length, "pod"), ["Pod", ["Node", "text"], "Uses"]);
  sync(parts.body, page.rows, (each) => each.pod, makePlacement, (row, each) => {
    put(row.children[1], each.node);
    put(row.children[2], [[each.volumes, "volume"], [each.devices, "device"]].filter(([some]) => some.length).map(([some, noun]) => plural(some.length, noun)).join(", ") || "–");
  });
  pager(parts, page, (next) => { placementPage = next; showPlacements(); });
}

function makePlacement(each) {
  const cells = [["Node", "text"], ["Uses", "uses"]].map(([name, kind]) => el("td", {class: kind, "data-name": name}));
  return el("tr", {}, el("th", {scope: "row"}, el("details", {}, el("summary", {}, each.pod), ...placementOf(each))), ...cells);
}

function usesOf({volumes, devices}) {
  const item = (text, soft) => el("li", {}, text, el("small", {}, soft));
  const parts = [];
  if (volumes.length) parts.push(el("ul", {}, ...volumes.map((each) => item(`claim ${each.claim} → ${each.volume}`, volumeText(each)))));
  if (devices.length) parts.push(el("ul", {}, ...devices.map((each) => item(`request ${each.request} of ${each.claim} → ${each.driver}/${each.pool}/${each.device}`, deviceText(each)))));
  return parts;
}

function placementOf(placed) {
  const parts = usesOf(placed);
  if (!placed.choice) return [...parts, el("p", {}, "No other node was compared.")];
  const {chosen, runnerUp} = placed.choice;
  parts.push(el("p", {}, `Score ${scoreText(chosen)}`));
  if (runnerUp) parts.push(el("p", {}, `Runner-up ${runnerUp.node}${runnerUp.total === chosen.total ? ", a tie" : ""}: ${scoreText(runnerUp)}`));
  return parts;
}

function volumeText(each) {
  const reach = each.segments.map((labels) => Object.entries(labels).map(([name, values]) => `${name}=${values.join("|")}`).join(" and ")).join(" or ");
  return [each.storageClass ? `class ${each.storageClass}` : "no class", each.capacity, reach || "every node reaches it", ...(each.pool ? [`pool ${each.pool}`] : [])].join(", ");
}

function deviceText(each) {
  const parts = Object.entries(each.consumed).map(([name, amount]) => `${amount} of its ${name}`);
  return [parts.join(", ") || "the whole device", ...(each.adminAccess || each.hasAdminAccess ? ["with admin access"] : [])].join(", ");
}

function scoreText({total, parts}) {
  const shown = Object.entries(parts).filter(([, score]) => score).sort(([, one], [, other]) => other - one);
  return `${total} = ${shown.map(([plugin, score]) => `${score} ${plugin}`).join(" + ") || "0"}`;
}

function showFile() {
  const {text, problems} = embedded.simulation, known = [...explained.keys()];
  $("pause").hidden = true;
  $("simulation").hidden = false;
  put($("simulation-text"), text);
  $("simulation-details").hidden = !problems.length;
  put($("simulation-summary"), `${plural(problems.length, "line")} that ${problems.length === 1 ? "is" : "are"} not as expected`);
  $("simulation-problems").append(...problems.map((each) => el("li", {}, each)));
  $("explain-form").hidden = true;
  $("explained-pods").hidden = false;
  $("explained-pods").append(el("p", {class: "soft"}, known.length ? "The file has the explanations of these pods:" : "The file has no explanations. Run the simulation with --explain."));
  if (known.length) $("explained-pods").append(el("div", {class: "tiles"}, ...known.map((pod) => el("button", {type: "button", onclick: () => explain(pod)}, pod))));
  searches("placed-search", () => { placementPage = 0; showPlacements(); });
}
