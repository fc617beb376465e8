//! Targets: names of entities of any space, as a URL path with a query, and back.
//!
//! Owns the grammar: `/SPACE/PART/PART?recursive=true`. Every part is percent-decoded once, by a
//! URL library; an invalid decoded part is refused, never repaired.
//! [`entity`](headwater_types::entity) translates between the names and the keys of a space.
//! Invariant: [`path_of`] an entity is a target of that entity.

use std::fmt::Write;

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use thiserror::Error;

use headwater_node::{Depth, Entity, EntitySpace, StoreTarget};
use headwater_types::catalog::canonical;
use headwater_types::entity::{NameError, is_own_key, key_of, part_of, segment_of};
use headwater_types::limits::{ENTITY_BATCH_BYTES_MAX, ENTITY_TARGET_BYTES_MAX};

/// Most parts of the name of a resource, count.
const RESOURCE_PARTS_MAX: usize = 6;

/// Most parts of the name of an instance of a service, count.
const INSTANCE_PARTS_MAX: usize = 3;

/// The spaces by the first parts of targets, in order.
pub const SPACES: [(&str, EntitySpace); 6] = [
    ("cluster", EntitySpace::Cluster),
    ("kv", EntitySpace::Kv),
    ("leases", EntitySpace::Leases),
    ("nodes", EntitySpace::Nodes),
    ("resources", EntitySpace::Resources),
    ("services", EntitySpace::Services),
];

/// Largest number of parts of a name in a space, and whether the space is a tree: only a tree is
/// followed recursively.
fn shape(space: EntitySpace) -> (usize, bool) {
    match space {
        EntitySpace::Kv => (usize::MAX, true),
        EntitySpace::Resources => (RESOURCE_PARTS_MAX, true),
        EntitySpace::Services => (INSTANCE_PARTS_MAX, true),
        EntitySpace::Nodes | EntitySpace::Leases => (1, false),
        EntitySpace::Cluster => (2, false),
    }
}

/// The target of a watch, and the size of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The entity; `None` for `/`, the list of the spaces.
    pub entity: Option<Entity>,
    /// Limit of the changes in one message, bytes. A larger change is a message of its own.
    pub batch_bytes: usize,
}

/// The mistake in a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// The target is too long.
    #[error("target is longer than {ENTITY_TARGET_BYTES_MAX} bytes")]
    TooLong,
    /// The target is no path, or does not begin with exactly one slash.
    #[error("target must be a URL path that begins with exactly one \"/\", without scheme or host, like \"/kv/app\"")]
    NotAPath,
    /// The target has a fragment.
    #[error("target has a fragment; a \"#\" that belongs to a name is written %23")]
    Fragment,
    /// The target has a control character that is not percent-encoded.
    #[error("target has control characters; what belongs to a name is percent-encoded")]
    Control,
    /// A percent sign begins no escape, or the escaped bytes are not UTF-8.
    #[error("target has a bad escape: {0}")]
    Escape(String),
    /// A part is not valid in a name.
    #[error("target: {0}")]
    Name(#[from] NameError),
    /// A part has an escaped slash.
    #[error("target: a \"/\" inside a part cannot be named by %2F; parts are separated by \"/\" alone")]
    Slash,
    /// There is no such space.
    #[error("target: there is no space {0:?}; the spaces are /cluster, /kv, /leases, /nodes, /resources and /services")]
    Space(String),
    /// The name has more parts than its space has.
    #[error("target: a name in {space:?} has at most {parts_max} parts")]
    Parts {
        /// The space.
        space: &'static str,
        /// Most parts of a name in it, count.
        parts_max: usize,
    },
    /// A parameter has a wrong value, or is given twice.
    #[error("target: {parameter} must be {wanted}, given once")]
    Parameter {
        /// The parameter.
        parameter: &'static str,
        /// The values that it takes.
        wanted: &'static str,
    },
    /// The target of the store's API is `/` without `recursive=true`, which names no entity.
    #[error("target: \"/\" alone names no entity; write \"/?recursive=true\" for everything, or name a space")]
    Root,
    /// This server does not follow the target recursively. The protocol would allow it.
    #[error("target: {0} is not followed recursively; leave out recursive=true")]
    NotRecursive(String),
}

impl Target {
    /// Reads the target of a watch.
    ///
    /// # Errors
    ///
    /// [`Invalid`].
    pub fn read(text: &str) -> Result<Self, Invalid> {
        let Parsed { entity, parameters: Parameters { recursive, batch_bytes, .. } } = Parsed::read(text)?;
        let Some((space, name)) = entity else {
            return match recursive {
                true => Err(Invalid::NotRecursive("\"/\"".to_owned())),
                false => Ok(Self { entity: None, batch_bytes }),
            };
        };
        let (_, is_tree) = shape(space);
        if recursive && !is_tree {
            return Err(Invalid::NotRecursive(format!("{:?}", name_of_space(space))));
        }
        Ok(Self { entity: Some(Entity { space, name, recursive }), batch_bytes })
    }

    /// Identifies the target in markers: the same for targets that mean the same.
    pub fn hash(&self) -> u64 {
        let mut hash = Sha256::new();
        if let Some(Entity { space, name, recursive }) = &self.entity {
            hash.update(name_of_space(*space));
            hash.update([0, u8::from(*recursive)]);
            hash.update(name);
        }
        let digest = hash.finalize();
        let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
        u64::from_be_bytes(*first)
    }
}

/// Reads a target of the store's API: by default an entity and the entities one level below it.
/// With `children=false` it is the entity alone. With `recursive=true`, which every space takes, it
/// is the entity and everything below. `/?recursive=true` is everything: a target for each space.
///
/// # Errors
///
/// [`Invalid`].
pub fn store_targets(text: &str) -> Result<Vec<StoreTarget>, Invalid> {
    let Parsed { entity, parameters: Parameters { recursive, children, .. } } = Parsed::read(text)?;
    let depth = match (recursive, children) {
        (true, Some(false)) => {
            return Err(Invalid::Parameter { parameter: "children", wanted: "true, or absent, with recursive=true" });
        }
        (true, Some(true) | None) => Depth::All,
        (false, Some(false)) => Depth::Itself,
        (false, Some(true) | None) => Depth::Children,
    };
    match entity {
        Some((space, name)) => Ok(vec![StoreTarget { space, name, depth }]),
        None if recursive => Ok(StoreTarget::everything()),
        None => Err(Invalid::Root),
    }
}

/// The path of an entity, as a target of it.
pub fn path_of(space: EntitySpace, name: &str) -> String {
    let mut path = String::with_capacity(name.len() + 12);
    push_path(&mut path, space, name);
    path
}

/// Appends the path of an entity to `path`, as [`path_of`].
pub fn push_path(path: &mut String, space: EntitySpace, name: &str) {
    path.push('/');
    path.push_str(name_of_space(space));
    if !name.is_empty() {
        path.push('/');
    }
    // Most names have only bytes that stay as they are, and bytes are quicker to judge than
    // characters.
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~' if !matches!(byte, b'%' | b'?' | b'#'))) {
        path.push_str(name);
        return;
    }
    let is_escaped = |character: char| character.is_control() || matches!(character, '%' | '?' | '#');
    let mut rest = name;
    while let Some(at) = rest.find(is_escaped) {
        path.push_str(&rest[..at]);
        let length = rest[at..].chars().next().map_or(0, char::len_utf8);
        for byte in rest[at..at + length].bytes() {
            write!(path, "%{byte:02X}").expect("a string takes what is written to it");
        }
        rest = &rest[at + length..];
    }
    path.push_str(rest);
}

fn name_of_space(space: EntitySpace) -> &'static str {
    SPACES.iter().find(|(_, known)| *known == space).map_or("", |(name, _)| *name)
}

/// A target, split: space and name of the entity (`None` for the root), and the parameters.
struct Parsed {
    entity: Option<(EntitySpace, String)>,
    parameters: Parameters,
}

impl Parsed {
    fn read(text: &str) -> Result<Self, Invalid> {
        if text.len() > ENTITY_TARGET_BYTES_MAX {
            return Err(Invalid::TooLong);
        }
        if text.contains('#') {
            return Err(Invalid::Fragment);
        }
        if text.chars().any(char::is_control) {
            return Err(Invalid::Control);
        }
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let path = path.strip_prefix('/').filter(|rest| !rest.starts_with('/')).ok_or(Invalid::NotAPath)?;
        let parameters = Parameters::read(query)?;
        if path.is_empty() {
            return Ok(Self { entity: None, parameters });
        }
        // Most targets are keys that are their own names: there is nothing to decode.
        if let Some(name) = path.strip_prefix("kv/").filter(|name| is_own_key(name)) {
            return Ok(Self { entity: Some((EntitySpace::Kv, name.to_owned())), parameters });
        }
        let parts = path.split('/').map(part).collect::<Result<Vec<_>, _>>()?;
        let (first, rest) = parts.split_first().expect("splitting yields at least one part");
        let known = SPACES.iter().find(|(name, _)| name == first);
        let (space_name, space) = *known.ok_or_else(|| Invalid::Space(first.clone()))?;
        let mut name = rest.join("/");
        if rest.iter().any(String::is_empty) {
            return Err(NameError::EmptyPart.into());
        }
        if !matches!(space, EntitySpace::Services | EntitySpace::Nodes) {
            key_of(&name)?;
        }
        let (parts_max, _) = shape(space);
        if rest.len() > parts_max {
            return Err(Invalid::Parts { space: space_name, parts_max });
        }
        if let (EntitySpace::Services | EntitySpace::Nodes, [catalog_names @ .., id]) = (space, rest) {
            // Letter case does not matter in names of services and nodes. It does in ids of
            // instances.
            let mut names = catalog_names.iter().map(|part| lowered(part)).collect::<Result<Vec<_>, _>>()?;
            names.push(if rest.len() == INSTANCE_PARTS_MAX { segment_of(&part_of(id)?) } else { lowered(id)? });
            name = names.join("/");
        }
        Ok(Self { entity: Some((space, name)), parameters })
    }
}

/// `segment`, which encodes the name of a service or a node, with that name in lower case. The
/// encoding hides slashes of the name. A name that is not UTF-8 stays as it is.
fn lowered(segment: &str) -> Result<String, NameError> {
    let part = part_of(segment)?;
    // A name that is not text does not exist.
    Ok(std::str::from_utf8(&part).map_or_else(|_| segment.to_owned(), |text| segment_of(canonical(text).as_bytes())))
}

/// One part of a path, decoded.
fn part(text: &str) -> Result<String, Invalid> {
    check_escapes(text)?;
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded =
        decoded.map_err(|_| Invalid::Escape(format!("{text:?} is no UTF-8; bytes of a key are written ~xHEX")))?;
    if decoded.contains('/') {
        return Err(Invalid::Slash);
    }
    Ok(decoded.into_owned())
}

/// Refuses a percent sign that begins no escape: the library would keep it as it is.
fn check_escapes(text: &str) -> Result<(), Invalid> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let is_escape = after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
        if !is_escape {
            return Err(Invalid::Escape(format!("{text:?} has a \"%\" without two hexadecimal digits behind it")));
        }
        rest = &after[2..];
    }
    Ok(())
}

struct Parameters {
    recursive: bool,
    children: Option<bool>,
    batch_bytes: usize,
}

impl Parameters {
    fn read(query: &str) -> Result<Self, Invalid> {
        check_escapes(query)?;
        let (mut recursive, mut children, mut batch_bytes) = (None, None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "recursive" => read_flag("recursive", &value, &mut recursive)?,
                "children" => read_flag("children", &value, &mut children)?,
                "batch_bytes" => {
                    let wrong = Invalid::Parameter { parameter: "batch_bytes", wanted: "a positive number" };
                    let value = value.parse().ok().filter(|bytes| *bytes > 0);
                    let Some(value) = value.filter(|_| batch_bytes.is_none()) else { return Err(wrong) };
                    batch_bytes = Some(value);
                }
                // Parameters of other implementations (the document: "only obeyed by some
                // implementations").
                _ => {}
            }
        }
        let batch_bytes = batch_bytes.unwrap_or(ENTITY_BATCH_BYTES_MAX).min(ENTITY_BATCH_BYTES_MAX);
        Ok(Self { recursive: recursive.unwrap_or(false), children, batch_bytes })
    }
}

fn read_flag(parameter: &'static str, value: &str, flag: &mut Option<bool>) -> Result<(), Invalid> {
    let wrong = Invalid::Parameter { parameter, wanted: "true or false" };
    let value = match value {
        "true" => true,
        "false" => false,
        _ => return Err(wrong),
    };
    if flag.replace(value).is_some() { Err(wrong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(text: &str) -> (String, bool) {
        let target = Target::read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let entity = target.entity.expect("not the root");
        assert_eq!(entity.space, EntitySpace::Kv, "{text}");
        (entity.name, entity.recursive)
    }

    #[test]
    fn w37_w38_parameters() {
        assert_eq!(kv("/kv/app"), ("app".to_owned(), false));
        assert_eq!(kv("/kv/app?recursive=true"), ("app".to_owned(), true));
        assert_eq!(kv("/kv/app?recursive=false"), ("app".to_owned(), false));
        assert_eq!(kv("/kv/app?foo=bar&recursive=true&x"), ("app".to_owned(), true));
        assert_eq!(kv("/kv/app?"), ("app".to_owned(), false));
        for value in ["TRUE", "1", "yes", "", "true&recursive=true", "true&recursive=false", "true+"] {
            let error = Target::read(&format!("/kv/app?recursive={value}")).unwrap_err();
            assert!(matches!(error, Invalid::Parameter { parameter: "recursive", .. }), "{value}: {error}");
        }
        assert_eq!(Target::read("/kv?batch_bytes=64").unwrap().batch_bytes, 64);
        assert_eq!(Target::read("/kv?batch_bytes=999999999").unwrap().batch_bytes, ENTITY_BATCH_BYTES_MAX);
        for value in ["0", "-1", "x", "1&batch_bytes=1"] {
            assert!(Target::read(&format!("/kv?batch_bytes={value}")).is_err(), "{value}");
        }
    }

    #[test]
    fn w39_w43_what_is_no_path() {
        for (text, wanted) in [
            ("app", Invalid::NotAPath),
            ("", Invalid::NotAPath),
            ("//", Invalid::NotAPath),
            ("//kv/app", Invalid::NotAPath),
            ("myservice.googleapis.com/kv/app", Invalid::NotAPath),
            ("http://h/kv/app", Invalid::NotAPath),
            ("?recursive=true", Invalid::NotAPath),
            ("/kv/app#x", Invalid::Fragment),
            ("/kv/a\0", Invalid::Control),
            ("/kv/", Invalid::Name(NameError::EmptyPart)),
            ("/kv//app", Invalid::Name(NameError::EmptyPart)),
            ("/kv/app/", Invalid::Name(NameError::EmptyPart)),
            ("/app", Invalid::Space("app".to_owned())),
            ("/KV/app", Invalid::Space("KV".to_owned())),
            ("/resources/a/b/c/d/e/f/g", Invalid::Parts { space: "resources", parts_max: 6 }),
            ("/services/a/b/c/d", Invalid::Parts { space: "services", parts_max: 3 }),
            ("/nodes/a/b", Invalid::Parts { space: "nodes", parts_max: 1 }),
        ] {
            assert_eq!(Target::read(text), Err(wanted), "{text:?}");
        }
        let longest = format!("/kv/{}", "a".repeat(ENTITY_TARGET_BYTES_MAX - 4));
        assert!(Target::read(&longest).is_ok());
        assert_eq!(Target::read(&format!("{longest}a")), Err(Invalid::TooLong));
    }

    #[test]
    fn w40_w41_w42_escapes() {
        for (text, name) in [
            ("/kv/a%20b", "a b"),
            ("/kv/a b", "a b"),
            ("/kv/a+b", "a+b"),
            ("/kv/%E2%82%AC", "€"),
            ("/kv/%e2%82%ac", "€"),
            ("/kv/a%2520b", "a%20b"),
            ("/kv/a%23b%3Fc", "a#b?c"),
            ("/%6bv/a", "a"),
            ("/kv/~/app", "~/app"),
            ("/kv/%7E/app", "~/app"),
            ("/kv/~xff", "~xff"),
        ] {
            assert_eq!(kv(text).0, name, "{text}");
        }
        for text in ["/kv/%zz", "/kv/%", "/kv/a%2", "/kv/%FF", "/kv/%+1", "/kv/a?recursive=%zz", "/kv/€%"] {
            assert!(matches!(Target::read(text), Err(Invalid::Escape(_))), "{text}");
        }
        for text in ["/kv/a%2Fb", "/kv/a%2fb"] {
            assert_eq!(Target::read(text), Err(Invalid::Slash), "{text}");
        }
        for text in ["/kv/a/../b", "/kv/a/./b", "/kv/..", "/kv/%2e%2E/b"] {
            assert!(matches!(Target::read(text), Err(Invalid::Name(NameError::Dots(_)))), "{text}");
        }
    }

    #[test]
    fn the_root_lists_the_spaces_and_nothing_below() {
        assert_eq!(Target::read("/").unwrap().entity, None);
        for flat in [
            "/?recursive=true",
            "/nodes?recursive=true",
            "/nodes/a?recursive=true",
            "/leases?recursive=true",
            "/cluster/members?recursive=true",
        ] {
            assert!(matches!(Target::read(flat), Err(Invalid::NotRecursive(_))), "{flat}");
        }
        let name = |text| Target::read(text).unwrap().entity.unwrap().name;
        assert_eq!(
            (name("/services/Web/N1/Id"), name("/services/Web"), name("/nodes/N1")),
            ("web/n1/Id".into(), "web".into(), "n1".into())
        );
        assert_eq!(
            (name("/services/~x412f62/N/~x412f62"), name("/nodes/~x412f62"), name("/services/~~A")),
            ("~x612f62/n/~x412f62".into(), "~x612f62".into(), "~~a".into())
        );
        assert!(matches!(Target::read("/services/~a"), Err(Invalid::Name(NameError::Tilde(_)))));
        assert!(matches!(Target::read("/kv/~x612f62"), Err(Invalid::Name(NameError::Tilde(_)))));
    }

    #[test]
    fn targets_that_mean_the_same_have_one_hash() {
        let hash = |text| Target::read(text).unwrap().hash();
        assert_eq!(hash("/kv/a%20b?recursive=true&x=y"), hash("/kv/a b?batch_bytes=7&recursive=true"));
        let all = ["/", "/kv", "/kv?recursive=true", "/kv/a", "/kv/~/a", "/kv/a/b", "/resources", "/resources/a"];
        for (number, one) in all.iter().enumerate() {
            for other in &all[number + 1..] {
                assert_ne!(hash(one), hash(other), "{one} {other}");
            }
        }
        // Markers outlive the program.
        assert_eq!(hash("/kv/app?recursive=true"), PINNED);
    }

    #[test]
    fn targets_of_the_store_name_a_part_of_a_tree() {
        let depth = |text| store_targets(text).map(|targets| targets[0].depth);
        assert_eq!(depth("/kv/app"), Ok(Depth::Children));
        assert_eq!(depth("/kv/app?children=true"), Ok(Depth::Children));
        assert_eq!(depth("/kv/app?children=false"), Ok(Depth::Itself));
        assert_eq!(depth("/nodes?recursive=true"), Ok(Depth::All));
        assert_eq!(store_targets("/?recursive=true").unwrap(), StoreTarget::everything());
        assert_eq!(store_targets("/"), Err(Invalid::Root));
        for text in ["/kv/a?children=no", "/kv/a?recursive=true&children=false", "/kv/a?children=true&children=true"] {
            let refused = store_targets(text);
            assert!(matches!(refused, Err(Invalid::Parameter { parameter: "children", .. })), "{text}: {refused:?}");
        }
    }

    #[test]
    fn the_path_of_an_entity_is_a_target_of_it() {
        for (name, path) in [
            ("", "/kv"),
            ("app/a b", "/kv/app/a b"),
            ("a%b?c#d", "/kv/a%25b%3Fc%23d"),
            ("a\u{1}\u{85}", "/kv/a%01%C2%85"),
            ("~/€", "/kv/~/€"),
            ("~xff", "/kv/~xff"),
        ] {
            assert_eq!(path_of(EntitySpace::Kv, name), path);
            assert_eq!(store_targets(path).unwrap()[0].name, name, "{path}");
        }
    }

    const PINNED: u64 = 0xed73_9c09_ed31_da3a;
}
