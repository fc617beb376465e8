// The commit that gives entities an earlier state back.

import { toBase64 } from "./api.js"
import { keyOfNames, namesOf } from "./store.js"

/**
 * Operations that turn the state after each change into the one before it.
 *
 * `undone` are the changes with an operation, in the order of `list`, and `conditional` all whose entity must still be as it
 * was: an instance that moved has two changes and one operation. `skipped` are the changes that no operation can undo, each
 * with the reason in `why`.
 */
export function operations(changes) {
  const found = []
  const skipped = []
  for (const change of changes) {
    const [operation, why] = operationOf(change)
    if (operation) found.push({ change, operation })
    else skipped.push({ ...change, why })
  }
  const registered = new Set(found.map(({ operation }) => instanceOf(operation.register)))
  const kept = found.filter(({ operation: { deregister } }) => !deregister || !registered.has(instanceOf(deregister)))
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

/** The operation that undoes a change, or null and why there is none. */
function operationOf({ path, before, after }) {
  const [space, names] = namesOf(path)
  switch (space) {
    case "kv": {
      const key = toBase64(keyOfNames(names))
      if (!before) return [{ delete_range: { key } }]
      const { value = "", lease = "0" } = before.data
      // A lease that the key does not have any more may have ended.
      const isKept = lease !== "0" && lease === after?.data.lease
      return [{ put: { key, value, ...(isKept && { ignore_lease: true }) } }]
    }
    case "resources": {
      if (!before) return [{ delete_resource: { id: after.data.id, version: after.data.version } }]
      const { id, owner, metadata, data } = before.data
      const now = after?.data
      const resource = {
        id: { ...id, uid: now?.id.uid ?? "" },
        owner,
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
      const register = {
        node: Node,
        service: Service,
        // Checks of the node belong to all of its instances.
        checks: Checks.filter(check => check.ServiceID),
        skip_node_update: true,
        replace_checks: true,
      }
      return [{ register }]
    }
    case "nodes":
      if (!before) return [null, "it would go with everything on it"]
      return [{ register: { node: before.data } }]
    case "leases":
      return [null, "leases cannot be brought back"]
    default:
      return [null, "only requests of its own change it"]
  }
}
