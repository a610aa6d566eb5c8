// -- the page -----------------------------------------------------------------------------------------------------------------

const PARTS = [
  ["pending", "Pending", () => overview.pending, "pending-title"], ...(embedded ? [["placed", "Placed", () => embedded.simulation.placed, "placed-title"]] : []),
  ["nodes", "Nodes", () => overview.nodes, "nodes-title"], ["devices", "Devices", null, "devices-title"], ["storage", "Storage", null, "storage-title"],
  ["groups", "Groups", () => Object.values(overview.groupStates).reduce((sum, each) => sum + each, 0), "groups-title"],
  ...(embedded ? [] : [["history", "History", null, "history-title"], ["what-if", "What if?", null, "what-if-title"]]),
];
let part = "pending", isPaused = false, timer = 0;

function partInAddress() {
  const wanted = location.hash.slice(1);
  return PARTS.some(([name]) => name === wanted) ? wanted : "pending";
}

function go(name) { if (part !== name) location.hash = name; openPart(name, false); }

function openPart(name, takesFocus) {
  part = name;
  for (const [each] of PARTS) $(`part-${each}`).hidden = each !== name;
  showParts();
  if (overview) showPart();
  if (takesFocus) $(PARTS.find(([each]) => each === name)[3]).focus();
}

function showParts() {
  sync($("parts"), PARTS, ([name]) => name, ([name, title]) => el("li", {}, el("a", {href: `#${name}`}, `${title} `, el("b"))), (item, [name, , count]) => {
    const link = item.firstElementChild;
    put(link.querySelector("b"), overview && count ? number(count()) : "");
    if (name === part) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  });
}

async function poll() {
  clearTimeout(timer);
  if (!isPaused && !document.hidden) await refresh();
  timer = setTimeout(poll, EVERY_MS);
}

async function refresh() {
  try {
    overview = embedded ? embedded.overview : await load("ui/data");
    showState();
    showParts();
    await showPart();
    $("trouble").hidden = true;
    put($("trouble"), "");
  } catch (error) {
    $("trouble").hidden = false;
    put($("trouble"), refusal(error) + (overview ? ". What is shown is older." : ""));
    if (!overview) { put($("state"), "No data"); put($("no-causes"), "No data."); }
  }
}

function showState() {
  const {facts, time} = overview;
  const role = embedded ? "simulation" : facts.leads ? "leads" : "stands by and has tried no pod";
  const lease = facts.lease && !embedded ? ` (Lease ${facts.lease})` : "";
  const audit = embedded ? "" : ` · self-audit: ${facts.auditPasses} passes, ${facts.auditDifferences} differences`;
  put($("state"), `${facts.version} · ${role}${lease} · profiles ${facts.schedulers.join(", ")}${audit} · ${new Date(time * 1000).toLocaleString("en-GB")}`);
}

// Only the open part is drawn, and only its rows are requested.
async function showPart() {
  if (part === "pending") {
    showPending();
    if (openCause !== null) await showPods(false);
    seekFixes();
  } else if (part === "placed") showPlacements();
  else if (part === "nodes") {
    showHeat();
    if (overview.cells.length) await guarded(() => showNodes(false), $("node-rows"));
  } else if (part === "devices") await guarded(showDevices, $("device-pools"));
  else if (part === "storage") await guarded(showStorage, $("storage-pools"));
  else if (part === "groups") {
    showGroups();
    if (openGroup !== null) await showMembers(false);
  } else if (part === "history") showHistory();
}

$("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const pod = $("explain-pod").value.trim();
  if (pod) explain(pod.includes("/") ? pod : `default/${pod}`);
  else $("explain-pod").focus();
});
$("what-if-form").addEventListener("submit", tryIt);
$("heat").addEventListener("keydown", moveInHeat);
$("history-details").addEventListener("toggle", () => showHistory());
searches("node-search", searchNodes);
for (const id of ["node-order", "node-least"]) $(id).addEventListener("change", searchNodes);
$("node-all").addEventListener("click", searchNodes);
searches("device-search", () => { devicePage = 0; guarded(showDevices, $("device-pools")); });
searches("storage-search", () => { storagePage = 0; guarded(showStorage, $("storage-pools")); });
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  if (!isPaused) poll();
});
addEventListener("hashchange", () => { const wanted = partInAddress(); if (wanted !== part) openPart(wanted, true); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && !isPaused && !embedded) poll(); });
if (embedded) showFile();
openPart(partInAddress(), false);
if (embedded) refresh(); else poll();
