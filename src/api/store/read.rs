//! Answers to reads, encoded as they are sent: a page has up to ten thousand entities, and messages
//! built for each of them cost as much as everything else of a read.

use std::sync::Arc;

use bytes::BufMut;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, uint64};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use super::encode::signed;
use headwater_api_shared::context::write_epoch_text;
use headwater_api_shared::entity_data::{PackedData, encode_bytes, length_delimited_len};
use headwater_api_shared::target::push_path;
use headwater_node::{StoreEntity, StorePage, StoreRead};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::small_decoder;

/// Number of the field `ReadResponse.entities`.
const ENTITIES: u32 = 4;
/// Numbers of the fields of `Entity`.
const PATH: u32 = 1;
const DATA: u32 = 2;
const INDEX: u32 = 3;

/// Bytes of most entities without their data.
const ENTITY_BYTES: usize = 96;

/// The answer to a read.
pub(super) struct ReadAnswer {
    /// The answer without its entities.
    head: pb::ReadResponse,
    entities: Vec<StoreEntity>,
    /// Size of the entities' names and data, estimated, bytes.
    bytes: usize,
    /// The name of the datacenter, which nodes of the catalog carry.
    datacenter: Arc<str>,
}

impl ReadAnswer {
    /// The answer with what was read. `token` makes the page token from the start of the next page;
    /// it is not called if there is no next page.
    pub(super) fn new(read: StoreRead, datacenter: Arc<str>, token: impl FnOnce(&StorePage) -> Vec<u8>) -> Self {
        let head = pb::ReadResponse {
            index: read.index.get(),
            revision: read.revision.get(),
            unix_ms: signed(read.unix_ms),
            next_page_token: read.next.as_ref().map(token).unwrap_or_default().into(),
            entities: Vec::new(),
            epoch: read.epoch.map(write_epoch_text).unwrap_or_default(),
        };
        Self { head, entities: read.entities, bytes: read.bytes, datacenter }
    }

    /// Writes the message `ReadResponse`.
    fn encode(self, to: &mut impl BufMut) {
        self.head.encode_raw(to);
        // All of an entity but its data is put together here, then written at once.
        let (mut path, mut start) = (String::with_capacity(ENTITY_BYTES), Vec::with_capacity(2 * ENTITY_BYTES));
        for entity in self.entities {
            path.clear();
            push_path(&mut path, entity.space, entity.name());
            let (index, data) = (entity.index.get(), PackedData::new(entity.data, &self.datacenter));
            let data_len = data.encoded_len();
            // As in every message, zero is left out.
            let index_len = if index == 0 { 0 } else { uint64::encoded_len(INDEX, &index) };
            let length = index_len + length_delimited_len(PATH, path.len()) + length_delimited_len(DATA, data_len);
            start.clear();
            encode_key(ENTITIES, WireType::LengthDelimited, &mut start);
            encode_varint(length as u64, &mut start);
            encode_bytes(PATH, path.as_bytes(), &mut start);
            if index != 0 {
                uint64::encode(INDEX, &index, &mut start);
            }
            encode_key(DATA, WireType::LengthDelimited, &mut start);
            encode_varint(data_len as u64, &mut start);
            data.encode(&mut start, to);
        }
    }
}

/// tonic's codec of a read.
#[derive(Default)]
pub(super) struct ReadCodec;

impl Codec for ReadCodec {
    type Encode = ReadAnswer;
    type Decode = pb::ReadRequest;
    type Encoder = ReadEncoder;
    type Decoder = ProstDecoder<pb::ReadRequest>;

    fn encoder(&mut self) -> ReadEncoder {
        ReadEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        small_decoder()
    }
}

/// Writes answers into tonic's buffer.
pub(super) struct ReadEncoder;

impl Encoder for ReadEncoder {
    type Item = ReadAnswer;
    type Error = Status;

    fn encode(&mut self, answer: ReadAnswer, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(answer.bytes);
        answer.encode(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_api_shared::entity_data::entity_data;
    use headwater_api_shared::target::path_of;
    use headwater_node::{ElementData, EntitySpace};
    use headwater_types::{KeyValue, LeaseId, LogIndex, Revision, StoreEpoch};

    fn entity(space: EntitySpace, name: &str, data: ElementData, index: u64) -> StoreEntity {
        StoreEntity::new(space, name.to_owned(), data, LogIndex(index))
    }

    #[test]
    fn an_answer_reads_as_the_whole_message() {
        let pair = |length| {
            let kv = KeyValue { key: "a%b".into(), value: vec![7; length].into(), ..Default::default() };
            ElementData::Kv(KeyValue { mod_revision: Revision(7), lease: LeaseId(-1), ..kv })
        };
        let entities = vec![
            entity(EntitySpace::Kv, "a%b", pair(0), 9),
            entity(EntitySpace::Kv, "long", pair(40_000), 300),
            entity(EntitySpace::Kv, "", ElementData::Empty, 0),
            entity(EntitySpace::Leases, "5", ElementData::Lease { id: LeaseId(5), ttl_seconds: 60 }, 4),
        ];
        let listed = |entity: StoreEntity| pb::Entity {
            path: path_of(entity.space, entity.name()),
            data: Some(entity_data(entity.data, "dc1")),
            index: entity.index.get(),
        };
        let wanted = pb::ReadResponse {
            index: 300,
            revision: 7,
            unix_ms: 5,
            next_page_token: "t".into(),
            entities: entities.iter().cloned().map(listed).collect(),
            epoch: write_epoch_text(StoreEpoch(1)),
        };
        let read = StoreRead {
            index: LogIndex(300),
            epoch: Some(StoreEpoch(1)),
            revision: Revision(7),
            unix_ms: 5,
            entities,
            bytes: 0,
            next: Some(StorePage { epoch: StoreEpoch(1), at: LogIndex(300), target: 0, after: vec![1] }),
        };
        let mut encoded = Vec::new();
        ReadAnswer::new(read, "dc1".into(), |page| if page.after == [1] { b"t".to_vec() } else { vec![] })
            .encode(&mut encoded);
        assert_eq!(pb::ReadResponse::decode(&encoded[..]), Ok(wanted.clone()));
        assert_eq!(encoded.len(), wanted.encoded_len());
    }
}
