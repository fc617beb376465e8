//! The message of a key-value pair, `mvccpb.KeyValue`, for all faces that send it.

use headwater_proto::pb::mvccpb;
use headwater_types::KeyValue;

/// The message of a pair.
pub fn key_value(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision.get(),
        mod_revision: kv.mod_revision.get(),
        version: kv.version,
        value: kv.value,
        lease: kv.lease.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{LeaseId, Revision};

    #[test]
    fn every_field_of_a_pair_arrives() {
        let kv = KeyValue {
            key: "k".into(),
            value: "v".into(),
            create_revision: Revision(2),
            mod_revision: Revision(3),
            version: 4,
            lease: LeaseId(5),
        };
        let wire = mvccpb::KeyValue {
            key: "k".into(),
            create_revision: 2,
            mod_revision: 3,
            version: 4,
            value: "v".into(),
            lease: 5,
        };
        assert_eq!(key_value(kv), wire);
    }
}
