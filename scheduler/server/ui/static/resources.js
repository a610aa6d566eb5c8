// -- devices and storage ------------------------------------------------------------------------------------------------------

let devicePage = 0, storagePage = 0;

// One page of `devices` or `storage`; the rows that a file has are searched here.
async function poolsOf(kind, page, texts) {
  const words = wordsOf(`${kind === "devices" ? "device" : "storage"}-search`);
  if (!embedded) return load(`ui/data?${new URLSearchParams({[kind]: words.join(" "), page})}`);
  const all = embedded[kind].pools.filter((each) => words.every((word) => texts(each).some((text) => text.toLowerCase().includes(word))));
  const {rows: pools, ...rest} = pageOf(all, page);
  return {...embedded[kind], ...rest, pools};
}

async function showDevices() {
  const answer = await poolsOf("devices", devicePage, (each) => [each.driver, each.pool, each.node]);
  devicePage = answer.page;
  const isNone = !answer.drivers.length;
  $("device-form").hidden = $("device-pools").hidden = $("device-drivers").hidden = isNone;
  put($("devices-text"), isNone ? "The cluster has no ResourceSlices and no extended resources." : "In use are devices of allocated claims. Counters that devices share may exclude some of the free ones.");
  if (isNone) return;
  const drivers = listing($("device-drivers"), "By driver, or by extended resource of device plugins", ["Driver or resource", "In use", ["Free", "number"], ["Pools", "number"], ["Pools without a free device", "number"]]);
  drivers.pages.hidden = true;
  sync(drivers.body, answer.drivers, (each) => `${each.name} ${each.isExtended}`, () => rowOf(drivers), (row, each) => {
    fillRow(row, each.name, each.isExtended ? "extended resource; its pools are nodes" : "driver of ResourceSlices", share(each.used, each.devices), each.devices - each.used, each.pools, each.full);
  });
  $("device-form").hidden = $("device-pools").hidden = answer.drivers.every((each) => each.isExtended);
  const parts = listing($("device-pools"), `${plural(answer.total, "pool")}`, ["Pool", "Driver", "Node", "In use", ["Free", "number"], ["Shared capacity", "text"]]);
  sync(parts.body, answer.pools, (each) => `${each.driver}/${each.pool}`, () => rowOf(parts), (row, each) => {
    const shared = each.shared.slice(0, REASONS).map((use) => `${use.device}: ${use.used} of ${use.of} ${use.capacity}`).join("; ");
    fillRow(row, each.pool, "", each.driver, each.node || "of no single node", share(each.used, each.devices), each.devices - each.used, shared || "–");
  });
  pager(parts, answer, (page) => { devicePage = page; guarded(showDevices, $("device-pools")); });
}

async function showStorage() {
  const answer = await poolsOf("storage", storagePage, (each) => [each.storageClass, each.pool, each.node]);
  storagePage = answer.page;
  const isNone = !answer.classes.length && !answer.drivers.length && !answer.pools.length;
  $("storage-classes").hidden = !answer.classes.length;
  $("storage-drivers").hidden = !answer.drivers.length;
  $("storage-form").hidden = $("storage-pools").hidden = !answer.pools.length && !$("storage-search").value;
  put($("storage-text"), isNone ? "The cluster has no StorageClasses, no attach limits and no CSIStorageCapacity objects." : "Reserved are volumes that are promised to claims, and that the capacity objects do not show yet. Free is without them.");
  const classes = listing($("storage-classes"), "Classes", ["Class", "Provisioner", "Binding", ["Capacity objects", "number"], ["Reserved", "number"], ["Free", "number"]]);
  classes.pages.hidden = true;
  sync(classes.body, answer.classes, (each) => each.name, () => rowOf(classes), (row, each) => {
    const free = each.pools ? [bytes(each.reserved), bytes(each.free)] : ["–", "–"];
    fillRow(row, each.name, "", each.provisioner, each.binding, each.pools, ...free);
  });
  const drivers = listing($("storage-drivers"), "Attach slots by driver, on nodes with a limit", ["Driver", "In use", ["Free", "number"], ["Nodes", "number"], ["Nodes without a free slot", "number"]]);
  drivers.pages.hidden = true;
  sync(drivers.body, answer.drivers, (each) => each.driver, () => rowOf(drivers), (row, each) => {
    fillRow(row, each.driver, "", share(each.used, each.limit), Math.max(0, each.limit - each.used), each.nodes, each.full);
  });
  const parts = listing($("storage-pools"), `${plural(answer.total, "capacity object")}`, ["Capacity object", "Class", ["Nodes", "text"], ["Reserved", "number"], ["Free", "number"], ["Largest volume", "number"]]);
  sync(parts.body, answer.pools, (each) => each.pool, () => rowOf(parts), (row, each) => {
    const nodes = each.nodes > 1 ? `${plural(each.nodes, "node")}, such as ${each.node}` : each.node || "none";
    fillRow(row, each.pool, "", each.storageClass, nodes, bytes(each.reserved), each.free === null ? "–" : bytes(each.free), each.largest === null ? "–" : bytes(each.largest));
  });
  pager(parts, answer, (page) => { storagePage = page; guarded(showStorage, $("storage-pools")); });
}
