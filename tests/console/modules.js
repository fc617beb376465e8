// The rules of the console's modules that need no page: YAML, names of keys, differences, net changes. Run in a page of the
// console; the value is a list of what does not hold.
;(async () => {
  const wrong = []
  const same = (name, found, wanted) => {
    if (JSON.stringify(found) !== JSON.stringify(wanted))
      wrong.push(`${name}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`)
  }
  const yaml = await import("/ui/yaml.js")
  const store = await import("/ui/store.js")
  const value = await import("/ui/value.js")
  const list = await import("/ui/list.js")
  const undo = await import("/ui/undo.js")

  const text = `# a manifest
title: Issues   # not part of it
"quoted: key": 'it''s'
year: 1999
large: 12345678901234567890
ratio: 1.5
flags: {open: true, none: null, list: [a, "b, c", {d: -1}]}
tracks:
- Dead
- name: Trash
  length: 3
- - nested
  - [1, 2,
     3]
block: |
  one
    two

  three
kept: |+
  end

folded: >-
  a
  b
empty: {}
nothing:
url: http://h:1/x#y
`
  const wanted = {
    title: "Issues",
    "quoted: key": "it's",
    year: 1999,
    large: "12345678901234567890",
    ratio: 1.5,
    flags: { open: true, none: null, list: ["a", "b, c", { d: -1 }] },
    tracks: ["Dead", { name: "Trash", length: 3 }, ["nested", [1, 2, 3]]],
    block: "one\n  two\n\nthree\n",
    kept: "end\n\n",
    folded: "a b",
    empty: {},
    nothing: null,
    url: "http://h:1/x#y",
  }
  same("yaml", yaml.read(text), wanted)
  same("yaml, written and read", yaml.read(yaml.write(wanted)), wanted)
  for (const odd of [
    "",
    " a",
    "a ",
    "true",
    "~",
    "1",
    "1.0",
    "- a",
    "a: b",
    "# a",
    "a #b",
    "'",
    '"',
    "{",
    "\t",
    "a\nb",
    "a\nb\n",
    "a\n\n",
    "\n",
    "a \nb",
    "é",
    "0x1",
    "|",
    "null",
    "-",
    "key:",
    "@x",
    "%x",
    "!t",
    "&a",
    "*a",
  ]) {
    same(`the text ${JSON.stringify(odd)}`, yaml.read(yaml.write({ k: odd, list: [odd], [odd || "k2"]: 1 })), {
      k: odd,
      list: [odd],
      [odd || "k2"]: 1,
    })
  }
  for (const [broken, line] of [
    ["a: 1\n b: 2", 1],
    ["a\nb: 1", 1],
    ["a: 1\nx: [1, 2", 1],
    ["a: 1\na: 2", 1],
    ["\ta: 1", 0],
    ["a: {b 1}", 0],
    ["- a\nb: 1", 1],
    ["a: &x 1", 0],
    ['a: "b', 0],
  ]) {
    try {
      wrong.push(`${JSON.stringify(broken)} is read as ${JSON.stringify(yaml.read(broken))}`)
    } catch (error) {
      same(`the line of ${JSON.stringify(broken)}`, error.line, line)
    }
  }

  const bytes = name => Uint8Array.from(name, char => char.charCodeAt(0))
  for (const [key, names] of [
    ["app/a", ["app", "a"]],
    ["/app", ["~", "app"]],
    ["a//b", ["a", "~", "b"]],
    ["a/", ["a", "~"]],
    ["~a", ["~~a"]],
    [".", ["~."]],
    ["..", ["~.."]],
    ["\xff/a", ["~xff", "a"]],
    ["a/b%c d", ["a", "b%c d"]],
    [Array(70).fill("p").join("/"), [...Array(63).fill("p"), `~x${"702f".repeat(6)}70`]],
  ]) {
    same(`the names of ${JSON.stringify(key)}`, store.namesOfKey(bytes(key)), names)
    same(`the key of ${JSON.stringify(names)}`, [...store.keyOfNames(names)], [...bytes(key)])
  }
  same("a path", store.keyPath(bytes("a b/c#?")), "/kv/a%20b/c%23%3F")
  same("its names", store.namesOf("/kv/a%20b/c%23%3F?recursive=true"), ["kv", ["a b", "c#?"]])
  same("the page of a key", store.pageOf("/kv/a%20b"), "#/keys/a%20b")

  for (const [data, content] of [
    [{ "@type": "type.googleapis.com/demo.v2.Artist", value: "x" }, { value: "x" }],
    [{ "@type": "type.googleapis.com/google.protobuf.Struct", value: { a: 1, value: 2 } }, { a: 1, value: 2 }],
    [{ "@type": "type.googleapis.com/google.protobuf.Duration", value: "1s" }, "1s"],
    [{ "@type": "type.googleapis.com/google.protobuf.UInt32Value", value: 5 }, 5],
    [{ name: "as the path says" }, { name: "as the path says" }],
    ["1s", "1s"],
    [[1], [1]],
  ]) {
    same(`the content of ${JSON.stringify(data)}`, store.contentOf(data), content)
  }

  const steps = (a, b) =>
    value
      .diffLines(a.split(""), b.split(""))
      .map(step => step[0])
      .join("")
  for (const [a, b, found] of [
    ["abc", "abc", "==="],
    ["abc", "axc", "=-+="],
    ["abc", "ac", "=-="],
    ["ac", "abc", "=+="],
    ["", "ab", "++"],
    ["ab", "", "--"],
    ["abcd", "bcxd", "-==+="],
  ]) {
    same(`the difference of ${a} and ${b}`, steps(a, b), found)
  }
  same("hex", value.hexDump(Uint8Array.of(0, 65, 255)).replace(/ +/g, " "), "00000000 00 41 ff ·A·")
  same(
    "the place in a list",
    [list.lowerBound([1, 3, 5], 0), list.lowerBound([1, 3, 5], 3), list.lowerBound([1, 3, 5], 6)],
    [0, 1, 3],
  )

  const kv = (text, revision) => ({
    data: {
      "@type": "type.googleapis.com/mvccpb.KeyValue",
      value: btoa(text),
      mod_revision: revision,
      version: revision,
    },
    index: revision,
  })
  const changes = store.net([
    {
      changes: [
        { path: "/kv/a", before: kv("1", "1"), after: kv("2", "2") },
        { path: "/kv/b", after: kv("x", "2") },
      ],
    },
    {
      changes: [
        { path: "/kv/a", before: kv("2", "2"), after: kv("1", "3") },
        { path: "/kv/c", before: kv("y", "1") },
      ],
    },
  ])
  same(
    "the net of changes",
    changes.map(change => [change.path, change.kind]),
    [
      ["/kv/b", "CREATED"],
      ["/kv/c", "REMOVED"],
    ],
  )
  const part = (index, paths, continued) => ({ index, continued, changes: paths.map(path => ({ path })) })
  const shown = ([found, open]) => [...found, open].map(it => it && `${it.index}${it.changes.map(({ path }) => path).join("")}`)
  const begun = store.whole([part("1", ["a"]), part("2", ["b", "c"], true)])
  same("a command in parts", shown(begun), ["1a", "2bc"])
  const further = store.whole([part("2", ["d"], true)], begun[1])
  same("its next part", shown(further), ["2bcd"])
  same("its end", shown(store.whole([part("2", ["e"]), part("3", ["f"])], further[1])), ["2bcde", "3f", undefined])
  const { list: operations, skipped } = undo.operations([...changes, { path: "/leases/0000000000000007" }])
  same("undoing", operations, [{ delete_range: { key: btoa("b") } }, { put: { key: btoa("c"), value: btoa("y") } }])
  same(
    "what cannot be undone",
    skipped.map(change => change.path),
    ["/leases/0000000000000007"],
  )

  const onLease = (text, lease) => ({ data: { ...kv(text, "1").data, lease } })
  const isLeaseKept = (before, after) =>
    undo.operations([{ path: "/kv/a", before, after }]).list[0].put.ignore_lease === true
  same(
    "a lease stays if the key still has it",
    [["7", "7"], ["7", "8"], ["7"], ["0", "0"], []].map(([then, now]) =>
      isLeaseKept(onLease("1", then), onLease("2", now)),
    ),
    [true, false, false, false, false],
  )
  same("a key that is gone has no lease", isLeaseKept(onLease("1", "7"), undefined), false)

  const check = (id, instance) => ({ Node: "N", CheckID: id, ServiceID: instance })
  const node = { path: "/nodes/n", state: { data: { Node: "N", Address: "10.0.0.1" } } }
  const instance = (service, id) => ({
    path: `/services/${service}/n/${id}`,
    state: {
      data: {
        Node: node.state.data,
        Service: { ID: id, Service: service },
        Checks: [check("c", id), check("serfHealth")],
      },
    },
  })
  const came = ({ path, state }) => ({ path, after: state })
  const went = ({ path, state }) => ({ path, before: state })
  // Each operation as a text, such as `register N/web-1 with c`.
  const catalog = (changes, all) => {
    const found = undo.operations(changes, all)
    const text = ({ register, deregister }) =>
      register
        ? `register ${register.node.Node}/${register.service?.ID ?? ""} with ${register.checks.map(it => it.CheckID)}`
        : `deregister ${deregister.node}/${deregister.service_id}`
    return {
      list: found.list.map(text),
      undone: found.undone.map(change => change.path),
      conditional: found.conditional.map(change => change.path),
      skipped: found.skipped.map(change => change.path),
    }
  }
  const web = instance("web", "web-1")
  same("a node that has come stays, with all that came to it", catalog([came(node)]), {
    list: [],
    undone: [],
    conditional: [],
    skipped: ["/nodes/n"],
  })
  same("the first registration on a new node", catalog([came(node), came(web)]), {
    list: ["deregister N/web-1"],
    undone: [web.path],
    conditional: [web.path],
    skipped: ["/nodes/n"],
  })
  const api = instance("api", "web-1")
  const moved = [came(api), came(instance("db", "db-1")), went(web)]
  same("an instance that moved is registered once", catalog(moved), {
    list: ["deregister N/db-1", "register N/web-1 with c"],
    undone: ["/services/db/n/db-1", web.path],
    conditional: [api.path, "/services/db/n/db-1", web.path],
    skipped: [],
  })
  const onNode = (change, name) => {
    const data = { ...change.state.data, Node: { Node: name, ID: "u" } }
    return { path: change.path.replace("/n/", `/${name}/`), state: { data } }
  }
  const renamed = [went(onNode(web, "n1")), came(onNode(web, "n2")), came(onNode(instance("db", "db-1"), "n2"))]
  same("a node that gets its name back takes its instances along", catalog(renamed), {
    list: ["register n1/web-1 with c"],
    undone: ["/services/web/n1/web-1"],
    conditional: ["/services/web/n1/web-1", "/services/web/n2/web-1", "/services/db/n2/db-1"],
    skipped: [],
  })
  const pair = [went(web), went(instance("web", "web-2"))]
  same("a node that is gone gets its own checks", catalog([went(node), ...pair]).list, [
    "register N/ with serfHealth",
    "register N/web-1 with c",
    "register N/web-2 with c",
  ])
  same("its first instance has them if the node is not among the changes", catalog(pair, [went(node), ...pair]).list, [
    "register N/web-1 with c,serfHealth",
    "register N/web-2 with c",
  ])
  same("checks of a node that is there stay", catalog(pair).list, [
    "register N/web-1 with c",
    "register N/web-2 with c",
  ])

  const resource = (kind, name, uid, owner) => {
    const idOf = (kind, name, uid) => ({
      uid,
      name,
      type: { group: "demo", group_version: "v2", kind },
      tenancy: { partition: "default", namespace: "default" },
    })
    const data = { id: idOf(kind, name, uid), owner: owner && idOf(...owner), version: uid, data: {} }
    return { path: `/resources/demo/v2/${kind}/default/default/${name}`, state: { data } }
  }
  const written = changes =>
    undo
      .operations(changes)
      .list.map(({ write_resource: write, delete_resource: gone }) =>
        write
          ? [write.resource.id.name, write.resource.id.uid, write.resource.version, write.resource.owner?.uid]
          : [gone.id.name, gone.id.uid, gone.version],
      )
  const album = resource("Album", "a", "2", ["Artist", "b", "1"])
  const artist = resource("Artist", "b", "1")
  same("an owner is written before what it owns, which is its own again", written([went(album), went(artist)]), [
    ["b", "", "", undefined],
    ["a", "", "", ""],
  ])
  same("and is deleted after it", written([came(artist), came(album)]), [
    ["a", "2", "2"],
    ["b", "1", "1"],
  ])
  const again = { ...went(album), after: resource("Album", "a", "9", ["Artist", "b", "1"]).state }
  same("a resource that is there keeps its identity", written([again]), [["a", "9", "9", ""]])
  const unit = kind => ({
    path: `/resources/tenancy/v2beta1/${kind}/~/~/x`,
    state: { data: { id: { name: kind, uid: "5", type: { group: "tenancy", group_version: "v2beta1", kind } } } },
  })
  const units = [album, artist, unit("Namespace"), unit("Partition")]
  const names = list => list.map(([name]) => name)
  same("units are written first", names(written(units.map(went))), ["Partition", "Namespace", "b", "a"])
  same("and deleted last", names(written(units.map(came))), ["a", "b", "Namespace", "Partition"])
  const tombstone = { path: "/resources/internal/v1/Tombstone/default/default/t", after: artist.state }
  same("tombstones are the store's", undo.operations([tombstone]).list, [])
  const unitOf = (kind, partition) => ({
    path: `/resources/tenancy/v2beta1/${kind}/${partition}/~/default`,
    after: unit(kind).state,
  })
  const all = [unitOf("Partition", "~"), unitOf("Namespace", "default"), unitOf("Namespace", "east")]
  const { list: removed, skipped: kept } = undo.operations(all)
  same("the units that the store always has stay", [removed.length, kept.length], [1, 2])
  return wrong
})()
