// The operations of a commit that give entities an earlier state back.

import { toBase64 } from "./api.js"
import { keyOfNames, namesOf } from "./store.js"

/**
 * Operations that turn the state after each change into the one before it, and the changes that they undo, in the same
 * order. `skipped` are the changes that no operation can undo: those of leases and members.
 */
export function operations(changes) {
  const list = []
  const undone = []
  const skipped = []
  for (const change of changes) {
    const operation = operationOf(change)
    if (operation) {
      list.push(operation)
      undone.push(change)
    } else skipped.push(change)
  }
  return { list, undone, skipped }
}

function operationOf({ path, before, after }) {
  const [space, names] = namesOf(path)
  switch (space) {
    case "kv": {
      const key = toBase64(keyOfNames(names))
      return before ? { put: { key, value: before.data.value ?? "" } } : { delete_range: { key } }
    }
    case "resources": {
      if (!before) return { delete_resource: { id: after.data.id, version: after.data.version } }
      const { id, owner, metadata, data, version } = before.data
      // A resource that exists keeps its version as the condition of the write.
      return {
        write_resource: {
          resource: {
            id: after ? id : { ...id, uid: "" },
            owner,
            metadata,
            data,
            version: after ? after.data.version : version && "",
          },
        },
      }
    }
    case "services": {
      if (before) {
        const { Node, Service, Checks = [] } = before.data
        // Checks of the node belong to all of its instances.
        return {
          register: {
            node: Node,
            service: Service,
            checks: Checks.filter(check => check.ServiceID),
            skip_node_update: true,
            replace_checks: true,
          },
        }
      }
      return { deregister: { node: after.data.Node.Node, service_id: after.data.Service.ID } }
    }
    case "nodes":
      return before ? { register: { node: before.data } } : { deregister: { node: after.data.Node } }
    default:
      return null
  }
}
