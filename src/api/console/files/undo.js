// The commit that gives entities an earlier state back.

import { toBase64 } from "./api.js"
import { keyOfNames, namesOf } from "./store.js"

/**
 * Operations that turn the state after each change into the one before it.
 *
 * `undone` are the changes with an operation, in the order of `list`, and `conditional` all whose entity must still be as it
 * was: an instance that moved has two changes and one operation. `skipped` are the changes that no operation can undo, each
 * with the reason in `why`. `all` are changes in which the removal of a node is looked for; they may be more than `changes`.
 */
export function operations(changes, all = changes) {
  const checks = checksOfNodes(changes, all)
  const rankOf = ranking(changes)
  const found = []
  const skipped = []
  for (const change of changes) {
    const [operation, why] = operationOf(change, checks)
    if (operation) found.push({ change, operation, rank: rankOf(change) })
    else skipped.push({ ...change, why })
  }
  found.sort((a, b) => a.rank - b.rank)
  const registered = new Set(found.map(({ operation }) => instanceOf(operation.register)))
  const nodes = found.map(({ operation }) => operation.register?.node).filter(node => node?.ID)
  // A node that gets an earlier name back takes everything on it along.
  const isRenamed = ({ ID, Node }) => nodes.some(node => node.ID === ID && node.Node.toLowerCase() !== Node.toLowerCase())
  const kept = found.filter(
    ({ change: { after }, operation: { deregister } }) =>
      !deregister || !(registered.has(instanceOf(deregister)) || isRenamed(after.data.Node)),
  )
  return {
    list: kept.map(({ operation }) => operation),
    undone: kept.map(({ change }) => change),
    conditional: found.map(({ change }) => change),
    skipped,
  }
}

/** The node and the id of the instance that an operation of the catalog is about. Names of nodes ignore case. */
function instanceOf(operation) {
  const id = operation?.service?.ID ?? operation?.service_id
  return id && JSON.stringify([(operation.node.Node ?? operation.node).toLowerCase(), id])
}

/** Units that the store has from its first command on, and never removes. */
const DEFAULT_UNITS = [
  "/resources/tenancy/v2beta1/Partition/~/~/default",
  "/resources/tenancy/v2beta1/Namespace/default/~/default",
]

/** Beginning of the keys of Consul's KV. */
const CONSUL_PREFIX = "consul/kv/"
/** Most bytes of a path and of a value that Consul's KV takes. */
const CONSUL_PATH_BYTES_MAX = 2048
const CONSUL_VALUE_BYTES_MAX = 512 * 1024

/** Whether Consul's KV can write the value, in base64, to the key with these names. */
function isOfConsul(names, value) {
  const key = keyOfNames(names)
  const length = key.length - CONSUL_PREFIX.length
  const begins = [...CONSUL_PREFIX].every((letter, at) => key[at] === letter.charCodeAt(0))
  return begins && length > 0 && length <= CONSUL_PATH_BYTES_MAX && (value.length / 4) * 3 <= CONSUL_VALUE_BYTES_MAX
}

/** The operation that undoes a change, or null and why there is none. */
function operationOf({ path, before, after }, checks) {
  const [space, names] = namesOf(path)
  switch (space) {
    case "kv": {
      const key = toBase64(keyOfNames(names))
      if (!before) return [{ delete_range: { key } }]
      const { value = "", lease = "0" } = before.data
      // A lease that the key does not have any more may have ended.
      const isKept = lease !== "0" && lease === after?.data.lease
      // A put of etcd would take the lock of a key of Consul from its session.
      if (after && lease === "0" && (after.data.lease ?? "0") === "0" && isOfConsul(names, value)) {
        return [{ consul_kv: { verb: "set", path: toBase64(keyOfNames(names).slice(CONSUL_PREFIX.length)), value } }]
      }
      return [{ put: { key, value, ...(isKept && { ignore_lease: true }) } }]
    }
    case "resources": {
      if (names[0] === "internal") return [null, "the store removes it by itself"]
      if (!before && DEFAULT_UNITS.includes(path)) return [null, "it is never removed"]
      if (!before) return [{ delete_resource: { id: after.data.id, version: after.data.version } }]
      const { id, owner, metadata, data } = before.data
      const now = after?.data
      const resource = {
        id: { ...id, uid: now?.id.uid ?? "" },
        // By its name alone: an owner that was made again has another uid.
        owner: owner && { ...owner, uid: "" },
        metadata,
        data,
        // A resource that exists keeps its version as the condition of the write.
        version: now?.version ?? "",
      }
      return [{ write_resource: { resource } }]
    }
    case "services": {
      if (!before) return [{ deregister: { node: after.data.Node.Node, service_id: after.data.Service.ID } }]
      const { Node, Service, Checks = [] } = before.data
      const own = Checks.filter(check => check.ServiceID)
      const register = {
        node: Node,
        service: Service,
        checks: [...own, ...take(checks, Node)],
        skip_node_update: true,
        replace_checks: true,
      }
      return [{ register }]
    }
    case "nodes":
      if (!before) return [null, "it would go with everything on it"]
      return [{ register: { node: before.data, checks: take(checks, before.data) } }]
    case "leases":
      return [null, "leases cannot be brought back"]
    default:
      return [null, "only requests of its own change it"]
  }
}

/**
 * The checks of nodes that are gone, by the name of the node. Instances have them; the checks of a node that exists stay as
 * they are.
 */
function checksOfNodes(changes, all) {
  const nodes = all.filter(({ path, after }) => path.startsWith("/nodes/") && !after)
  const gone = new Map(nodes.map(({ before }) => [before.data.Node.toLowerCase(), []]))
  for (const { path, before } of changes) {
    if (!path.startsWith("/services/") || !before) continue
    const node = before.data.Node.Node.toLowerCase()
    if (gone.has(node))
      gone.set(
        node,
        (before.data.Checks ?? []).filter(check => !check.ServiceID),
      )
  }
  return gone
}

/** The checks of a node for the first operation that registers it; none for the others. */
function take(checks, node) {
  const name = node.Node.toLowerCase()
  const found = checks.get(name) ?? []
  checks.delete(name)
  return found
}

// ---- the order of resources

const UNITS = ["tenancy/v2beta1/Partition", "tenancy/v2beta1/Namespace"]

/**
 * The rank of each change in the list. Resources run in its order: what others need is written first and deleted last.
 */
function ranking(changes) {
  const isResource = ({ path }) => path.startsWith("/resources/")
  const dataOf = ({ before, after }) => (before ?? after).data
  const nameOf = ({ type, tenancy = {}, name } = { type: {} }) =>
    JSON.stringify([type.group, type.kind, tenancy.partition, tenancy.namespace, name])
  const resources = changes.filter(isResource).map(dataOf)
  const ownerOf = new Map(resources.map(({ id, owner }) => [nameOf(id), nameOf(owner)]))
  return change => {
    if (!isResource(change)) return 0
    const unit = UNITS.indexOf(change.path.split("/").slice(2, 5).join("/"))
    let rank = unit < 0 ? UNITS.length : unit
    // Owners form no ring; the bound holds if data says otherwise.
    const max = rank + ownerOf.size
    for (let name = nameOf(dataOf(change).owner); ownerOf.has(name) && rank < max; name = ownerOf.get(name)) rank++
    return change.before ? rank : -rank
  }
}
