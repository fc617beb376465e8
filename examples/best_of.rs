//! A small controller: every artist of the demonstration gets an album `NAME-best-of` with the
//! first track of each of its other albums.
//!
//! ```sh
//! headwater resource apply -f examples/
//! cargo run -p headwater-client --example best_of -- 127.0.0.1:2379 127.0.0.1:22379 127.0.0.1:32379
//! headwater resource read v2.Album korn-best-of
//! ```
//!
//! It shows the parts of a controller. It *owns* the albums that it makes, so that they are deleted
//! with their artist. It follows both types, so that a new album or a deleted compilation brings
//! the artist back to it. It compares before it writes. Its status tells the generation that it has
//! looked at. Start it several times: one instance works, the others wait.

use headwater_client::controller::{Action, Client, Controller, Error, Reconciler, wire};
use headwater_proto::pb::pbresource::{self, Resource};
use headwater_types::resource::{ResourceId, Type};
use prost::Message;

/// Two fields of `demo.v2.Album`. A write loses the other fields, which is harmless: only this
/// controller writes these albums.
#[derive(Clone, PartialEq, Message)]
struct Album {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, repeated, tag = "4")]
    tracks: Vec<String>,
}

const ALBUM_URL: &str = "type.googleapis.com/demo.v2.Album";
/// Key of the status that this controller writes on an artist.
const STATUS_KEY: &str = "demo/best-of";
const SUFFIX: &str = "-best-of";

struct BestOf;

impl Reconciler for BestOf {
    async fn reconcile(&self, client: &Client, id: &ResourceId) -> Result<Action, Error> {
        // A deleted artist needs nothing: its albums are deleted with it.
        let Some(artist) = client.read(id).await? else { return Ok(Action::Done) };
        let owner = artist.id.clone().unwrap_or_default();
        let name = format!("{}{SUFFIX}", id.name);

        let mut albums = client.list_by_owner(&owner).await?;
        albums.sort_by_key(name_of);
        let existing = albums.iter().position(|album| name_of(album) == name).map(|at| albums.remove(at));
        let tracks: Vec<_> = albums.iter().filter_map(first_track).collect();

        let wanted = Album { title: format!("The Best of {}", id.name), tracks };
        if existing.as_ref().and_then(album).as_ref() != Some(&wanted) {
            let album_id = ResourceId { name, type_: album_type(), ..id.clone() };
            let album = Resource {
                id: Some(wire::id_to_pb(&album_id)),
                owner: Some(owner),
                version: existing.map(|existing| existing.version).unwrap_or_default(),
                metadata: [("made-by".to_owned(), "best-of".to_owned())].into(),
                data: Some(prost_types::Any { type_url: ALBUM_URL.to_owned(), value: wanted.encode_to_vec() }),
                ..Default::default()
            };
            match client.write(album).await {
                Ok(_) => println!("{}: {} tracks", wire::name(&album_id), wanted.tracks.len()),
                // Another client was faster: its write brings the artist back here.
                Err(error) if error.is_conflict() => return Ok(Action::Done),
                Err(error) => return Err(error),
            }
        }

        // Writing a status brings the artist back here, too, so it is written once for each
        // generation.
        if artist.status.get(STATUS_KEY).is_none_or(|status| status.observed_generation != artist.generation) {
            let condition = pbresource::Condition {
                r#type: "Compiled".to_owned(),
                state: pbresource::condition::State::True.into(),
                reason: "AlbumWritten".to_owned(),
                ..Default::default()
            };
            let status = pbresource::Status {
                observed_generation: artist.generation,
                conditions: vec![condition],
                updated_at: None,
            };
            client.write_status(artist.id, STATUS_KEY, status).await?;
        }
        Ok(Action::Done)
    }
}

fn album_type() -> Type {
    Type::new("demo", "v2", "Album")
}

fn name_of(resource: &Resource) -> String {
    resource.id.as_ref().map(|id| id.name.clone()).unwrap_or_default()
}

fn album(resource: &Resource) -> Option<Album> {
    let data = resource.data.as_ref().filter(|data| data.type_url == ALBUM_URL)?;
    Album::decode(data.value.as_slice()).ok()
}

fn first_track(resource: &Resource) -> Option<String> {
    album(resource)?.tracks.into_iter().next()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let mut endpoints: Vec<_> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_owned());
    }
    let client = Client::new(endpoints)?;
    let stop = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("interrupts cannot be heard: {error}");
        }
    };
    Controller::new("best-of", Type::new("demo", "v2", "Artist"))
        .owns(album_type())
        .workers(4)
        .run(client, BestOf, stop)
        .await;
    Ok(())
}
