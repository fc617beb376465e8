//! Registrations of types, and the built-in types, which need none.

use std::fmt;

use bytes::Bytes;

use super::{DEFAULT_UNIT, Tenancy, Type};

/// The units of tenancy that the resources of a type have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Any units are accepted. Only `internal.v1.Tombstone` has this scope.
    Undefined,
    /// No units: the resources belong to the cluster as a whole.
    Cluster,
    /// A partition alone.
    Partition,
    /// A partition and a namespace of it.
    Namespace,
}

impl Scope {
    /// Whether resources of the scope have a partition. False for [`Undefined`](Self::Undefined).
    pub fn has_partition(self) -> bool {
        matches!(self, Self::Partition | Self::Namespace)
    }

    /// Whether resources of the scope have a namespace. False for [`Undefined`](Self::Undefined).
    pub fn has_namespace(self) -> bool {
        self == Self::Namespace
    }

    /// Sets units of `tenancy` to [`DEFAULT_UNIT`]: those that the scope has and that are empty.
    /// Leaves all others as they are.
    pub fn fill(self, tenancy: &mut Tenancy) {
        for (has, unit) in
            [(self.has_partition(), &mut tenancy.partition), (self.has_namespace(), &mut tenancy.namespace)]
        {
            if has && unit.is_empty() {
                DEFAULT_UNIT.clone_into(unit);
            }
        }
    }

    /// Whether `tenancy` has exactly the units that the scope has. [`Scope::Undefined`] accepts
    /// any.
    pub fn fits(self, tenancy: &Tenancy) -> bool {
        self == Self::Undefined
            || (self.has_partition() != tenancy.partition.is_empty()
                && self.has_namespace() != tenancy.namespace.is_empty())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undefined => "undefined",
            Self::Cluster => "cluster",
            Self::Partition => "partition",
            Self::Namespace => "namespace",
        })
    }
}

/// A registration of a type: the content of a resource of type `headwater.v1.ResourceType`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// Group, version and kind of the registered type.
    pub type_: Type,
    /// Scope of the resources: the units of their tenancy.
    pub scope: Scope,
    /// Full name of the protobuf message in the resources' `data`; empty for a type without data.
    pub message: String,
    /// An encoded `google.protobuf.FileDescriptorSet` with that message.
    pub descriptor_set: Bytes,
    /// Defaults of fields of `data` that a write leaves out: the text of a JSON object, or empty.
    pub defaults_json: String,
    /// Rules that `data` must satisfy, in the order of evaluation.
    pub rules: Vec<Rule>,
    /// Whether the type is left out of the HTTP API.
    pub dont_map_http: bool,
    /// Description of the type, for people.
    pub description: String,
}

/// One condition that the data of a resource must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Condition in the Common Expression Language; must be true.
    pub expression: String,
    /// Message to a client if its resource breaks the rule.
    pub message: String,
}

/// The name of the resource that registers a type: group, version and kind, joined by `-`. The kind
/// is in lower case, and each `_` of the group is a `-`. Two types have the same name only if their
/// kinds differ in case alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeName(pub String);

impl TypeName {
    /// The name of the registration of `type_`.
    pub fn of(type_: &Type) -> Self {
        let group = type_.group.replace('_', "-");
        Self(format!("{group}-{}-{}", type_.group_version, type_.kind.to_ascii_lowercase()))
    }
}

/// The built-in types, with their scopes and the full names of their protobuf messages.
pub fn builtin_types() -> [(Type, Scope, &'static str); 4] {
    [
        (Type::tombstone(), Scope::Undefined, "hashicorp.consul.resource.Tombstone"),
        (Type::resource_type(), Scope::Cluster, "headwater.v1.ResourceType"),
        (Type::partition(), Scope::Cluster, "hashicorp.consul.tenancy.v2beta1.Partition"),
        (Type::namespace(), Scope::Partition, "hashicorp.consul.tenancy.v2beta1.Namespace"),
    ]
}

/// The built-in types as registrations. `descriptors` is the encoded `FileDescriptorSet` with the
/// messages of all of them.
pub fn builtin_registrations(descriptors: &'static [u8]) -> [ResourceType; 4] {
    builtin_types().map(|(type_, scope, message)| ResourceType {
        type_,
        scope,
        message: message.to_owned(),
        descriptor_set: Bytes::from_static(descriptors),
        defaults_json: String::new(),
        rules: Vec::new(),
        dont_map_http: false,
        description: "always there".to_owned(),
    })
}

/// The scope of a built-in type; `None` for other types.
pub fn builtin_scope(type_: &Type) -> Option<Scope> {
    let (group, version, kind) = (type_.group.as_str(), type_.group_version.as_str(), type_.kind.as_str());
    match (group, version, kind) {
        ("internal", "v1", "Tombstone") => Some(Scope::Undefined),
        ("headwater", "v1", "ResourceType") | ("tenancy", "v2beta1", "Partition") => Some(Scope::Cluster),
        ("tenancy", "v2beta1", "Namespace") => Some(Scope::Partition),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_what_is_always_there_and_the_look_up_agree() {
        for (type_, scope, _) in builtin_types() {
            assert_eq!(builtin_scope(&type_), Some(scope), "{type_}");
            assert_eq!(type_.is_tombstone(), type_ == Type::tombstone());
            assert_eq!(type_.is_resource_type(), type_ == Type::resource_type());
        }
        assert_eq!(builtin_scope(&Type::new("tenancy", "v2beta1", "Cluster")), None);
        assert_eq!(builtin_scope(&Type::new("tenancy", "v1", "Partition")), None);
    }

    #[test]
    fn a_scope_fits_the_units_that_it_has() {
        let cases = [("", ""), ("p", ""), ("p", "n"), ("", "n")];
        for (scope, fits) in [
            (Scope::Undefined, [true, true, true, true]),
            (Scope::Cluster, [true, false, false, false]),
            (Scope::Partition, [false, true, false, false]),
            (Scope::Namespace, [false, false, true, false]),
        ] {
            let got = cases.map(|(partition, namespace)| scope.fits(&Tenancy::new(partition, namespace)));
            assert_eq!(got, fits, "{scope}");
        }
    }

    #[test]
    fn a_registration_is_named_after_its_type() {
        for (type_, name) in [
            (Type::new("demo", "v2", "Artist"), "demo-v2-artist"),
            (Type::new("foo_bar", "v2beta1", "RecordLabel"), "foo-bar-v2beta1-recordlabel"),
        ] {
            assert_eq!(TypeName::of(&type_).0, name);
        }
    }
}
