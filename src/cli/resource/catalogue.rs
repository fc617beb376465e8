//! The types of resources that a command knows: built-in ones, those registered in the cluster, and
//! those that its manifests register.

use std::sync::{Arc, OnceLock};

use prost::Message;
use tonic::Response;

use crate::Freshness;
use crate::connect::Cluster;
use crate::error::CliError;
use headwater_client::controller::wire;
use headwater_client::{Attempt, Repeat};
use headwater_proto::pb::{PUBLIC_DESCRIPTORS, headwater_v1, pbresource, struct_to_json};
use headwater_schema::{SchemaError, TypeSchema};
use headwater_types::resource::{ResourceType, Rule, Scope, Type, builtin_registrations};

/// Resources in one page of a list.
pub(super) const PAGE_SIZE: usize = 500;

/// A type of resources, with the schema of its data.
#[derive(Clone, Debug)]
pub(crate) struct KnownType {
    pub(super) registration: ResourceType,
    pub(super) is_builtin: bool,
    /// Compiled when it is first needed.
    schema: OnceLock<Result<Arc<TypeSchema>, SchemaError>>,
}

impl KnownType {
    fn new(registration: ResourceType, is_builtin: bool) -> Self {
        Self { registration, is_builtin, schema: OnceLock::new() }
    }

    pub(super) fn type_(&self) -> &Type {
        &self.registration.type_
    }

    pub(super) fn scope(&self) -> Scope {
        self.registration.scope
    }

    pub(super) fn schema(&self) -> Result<Arc<TypeSchema>, SchemaError> {
        self.schema.get_or_init(|| TypeSchema::compile(&self.registration).map(Arc::new)).clone()
    }
}

/// The known types of resources. No two have the same group, version and kind.
#[derive(Clone, Debug)]
pub(crate) struct Catalogue {
    types: Vec<KnownType>,
}

impl Catalogue {
    /// The built-in types: every cluster has them.
    pub(crate) fn builtin() -> Self {
        let types = builtin_registrations(PUBLIC_DESCRIPTORS).map(|registration| KnownType::new(registration, true));
        Self { types: types.into() }
    }

    /// The built-in types, and those registered in the cluster.
    pub(crate) async fn read(cluster: &Cluster, freshness: Freshness) -> Result<Self, CliError> {
        let consistent = freshness == Freshness::Linearizable;
        let mut catalogue = Self::builtin();
        let mut token = None;
        loop {
            let request = pbresource::ListRequest {
                r#type: Some(wire::type_to_pb(&Type::resource_type())),
                tenancy: Some(pbresource::Tenancy::default()),
                name_prefix: String::new(),
            };
            let (answer, next) = page(cluster, request, token.as_deref(), consistent).await?;
            for data in answer.resources.into_iter().filter_map(|resource| resource.data) {
                let registered = headwater_v1::ResourceType::decode(data.value.as_slice()).map_err(CliError::other)?;
                catalogue.add(registration(registered));
            }
            match next {
                Some(next) => token = Some(next),
                None => return Ok(catalogue),
            }
        }
    }

    /// Adds a type, in place of an earlier registration. A built-in type stays.
    pub(super) fn add(&mut self, registration: ResourceType) {
        if self.get(&registration.type_).is_some_and(|known| known.is_builtin) {
            return;
        }
        self.types.retain(|known| *known.type_() != registration.type_);
        self.types.push(KnownType::new(registration, false));
    }

    pub(super) fn all(&self) -> &[KnownType] {
        &self.types
    }

    pub(crate) fn get(&self, type_: &Type) -> Option<&KnownType> {
        self.types.iter().find(|known| known.type_() == type_)
    }

    /// The type called `name`: `group.version.Kind`, `version.Kind`, `group.Kind` or `Kind`, if no
    /// other type is called so. Case does not matter in the kind. An error is a text for people.
    pub(super) fn resolve(&self, name: &str) -> Result<&KnownType, String> {
        let matching: Vec<_> = self.types.iter().filter(|known| is_called(known.type_(), name)).collect();
        match matching.as_slice() {
            [one] => Ok(one),
            [] => Err(self.unknown(name)),
            several => {
                let names: Vec<_> = several.iter().map(|known| known.type_().to_string()).collect();
                Err(format!("several types are called {name}: write {}", names.join(" or ")))
            }
        }
    }

    fn unknown(&self, name: &str) -> String {
        let own: Vec<_> = self.types.iter().filter(|known| !known.is_builtin).collect();
        let mut text = format!("there is no type {name}");
        match own.as_slice() {
            [] => text.push_str("; none is registered yet"),
            few if few.len() <= 8 => {
                let names: Vec<_> = few.iter().map(|known| known.type_().to_string()).collect();
                text.push_str(&format!("; registered are {}", names.join(", ")));
            }
            _ => text.push_str("; `headwater resource types` lists those that are registered"),
        }
        text.push_str(". A ResourceType registers one (docs/resources.md)");
        text
    }
}

fn is_called(type_: &Type, name: &str) -> bool {
    let (prefix, kind) = name.rsplit_once('.').map_or((None, name), |(prefix, kind)| (Some(prefix), kind));
    if !kind.eq_ignore_ascii_case(&type_.kind) {
        return false;
    }
    match prefix {
        None => true,
        Some(prefix) => {
            prefix == type_.group
                || prefix == type_.group_version
                || prefix.split_once('.') == Some((type_.group.as_str(), type_.group_version.as_str()))
        }
    }
}

/// One page of a list, and the token of the next page; `None` after the last page. `token` names
/// the page, `None` the first one. `consistent` asks for a linearizable read.
pub(super) async fn page(
    cluster: &Cluster,
    request: pbresource::ListRequest,
    token: Option<&str>,
    consistent: bool,
) -> Result<(pbresource::ListResponse, Option<String>), CliError> {
    let call = async |attempt: Attempt| {
        let mut list = attempt.request(request.clone());
        if consistent {
            wire::consistent(&mut list);
        }
        wire::page(&mut list, PAGE_SIZE, token);
        let answer = attempt.resources().list(list).await?;
        let next = wire::next_page(&answer);
        Ok(Response::new((answer.into_inner(), next)))
    };
    cluster.call(Repeat::Harmless, call).await
}

/// Converts a registration from protobuf.
pub(super) fn registration(from: headwater_v1::ResourceType) -> ResourceType {
    let scope = match from.scope() {
        headwater_v1::resource_type::Scope::Undefined => Scope::Undefined,
        headwater_v1::resource_type::Scope::Cluster => Scope::Cluster,
        headwater_v1::resource_type::Scope::Partition => Scope::Partition,
        headwater_v1::resource_type::Scope::Namespace => Scope::Namespace,
    };
    ResourceType {
        type_: Type { group: from.group, group_version: from.group_version, kind: from.kind },
        scope,
        message: from.message,
        descriptor_set: from.descriptor_set,
        defaults_json: from.defaults.map_or_else(String::new, |defaults| struct_to_json(&defaults).to_string()),
        rules: from.rules.into_iter().map(|rule| Rule { expression: rule.expression, message: rule.message }).collect(),
        dont_map_http: from.dont_map_http,
        description: from.description,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(types: &[(&str, &str, &str)]) -> Catalogue {
        let mut catalogue = Catalogue::builtin();
        for (group, version, kind) in types {
            let mut registration = catalogue.types[0].registration.clone();
            registration.type_ = Type::new(group, version, kind);
            catalogue.add(registration);
        }
        catalogue
    }

    #[test]
    fn a_type_is_called_by_as_much_as_says_which() {
        let types = [
            ("demo", "v1", "Artist"),
            ("demo", "v2", "Artist"),
            ("demo", "v2", "Album"),
            ("shop", "v1", "Album"),
            ("shop", "v1", "Cart"),
        ];
        let catalogue = catalogue(&types);
        for (name, wanted) in [
            ("demo.v2.Artist", Ok("demo.v2.Artist")),
            ("v2.Artist", Ok("demo.v2.Artist")),
            ("Artist", Err("write demo.v1.Artist or demo.v2.Artist")),
            ("demo.Artist", Err("several types")),
            ("Album", Err("demo.v2.Album or shop.v1.Album")),
            ("shop.Album", Ok("shop.v1.Album")),
            ("cart", Ok("shop.v1.Cart")),
            ("shop.cart", Ok("shop.v1.Cart")),
            ("ResourceType", Ok("headwater.v1.ResourceType")),
            ("namespace", Ok("tenancy.v2beta1.Namespace")),
            ("Painter", Err("there is no type Painter; registered are demo.v1.Artist,")),
            ("demo.v3.Artist", Err("there is no type")),
            ("", Err("there is no type")),
            ("Demo.v2.Artist", Err("there is no type")),
        ] {
            let found = catalogue.resolve(name).map(|known| known.type_().to_string());
            match (found, wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{name}"),
                (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{name}: {found}"),
                (found, wanted) => panic!("{name}: {found:?}, {wanted:?}"),
            }
        }
    }

    #[test]
    fn a_later_registration_takes_the_place_of_an_earlier_one() {
        let mut catalogue = catalogue(&[("demo", "v1", "Artist")]);
        let mut changed = catalogue.resolve("Artist").unwrap().registration.clone();
        changed.description = "changed".to_owned();
        catalogue.add(changed);
        assert_eq!(catalogue.resolve("Artist").unwrap().registration.description, "changed");
    }

    #[test]
    fn a_registration_of_a_builtin_type_adds_no_second_one() {
        let builtin = Catalogue::builtin();
        let mut catalogue = builtin.clone();
        for known in builtin.all() {
            catalogue.add(ResourceType { description: "changed".to_owned(), ..known.registration.clone() });
            let found = catalogue.resolve(&known.type_().to_string()).unwrap();
            assert!(found.is_builtin && found.registration == known.registration);
        }
        assert_eq!(catalogue.all().len(), builtin.all().len());
    }

    #[test]
    fn what_is_always_there_can_be_judged() {
        for known in Catalogue::builtin().all() {
            let schema = known.schema().unwrap();
            assert_eq!(schema.message().unwrap().full_name(), known.registration.message);
        }
    }
}
