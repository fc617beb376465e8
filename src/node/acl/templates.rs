//! Templated policies and identities: rules with a name filled in (spec: security §4).
//!
//! Owns the builtin templates. Invariant: the displayed rules of a template are the ones in effect.

use headwater_types::acl::{NodeIdentity, ServiceIdentity, TemplatedPolicy};

/// A template of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Name of the template, such as `builtin/service`.
    pub name: &'static str,
    /// The description that people see.
    pub description: &'static str,
    /// The rules, with [`VARIABLE`](Self::VARIABLE) where the name is put in.
    pub rules: &'static str,
}

const NAME_SCHEMA: &str = r##"{
	"type": "object",
	"properties": {
		"name": { "type": "string", "$ref": "#/definitions/min-length-one" }
	},
	"required": ["name"],
	"definitions": {
		"min-length-one": {
			"type": "string",
			"minLength": 1
		}
	}
}"##;

/// The builtin templates, in the order of their names.
pub const TEMPLATES: [Template; 6] = [
    Template {
        name: "builtin/api-gateway",
        description: "Gives the token or role permissions for a Consul api gateway",
        rules: "mesh = \"read\"\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}\n\
                service \"{{.Name}}\" {\n\tpolicy = \"write\"\n}\n",
    },
    Template {
        name: "builtin/dns",
        description: "Gives the token or role permissions for the DNS to resolve services",
        rules: "node_prefix \"\" {\n\tpolicy = \"read\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}\n\
                query_prefix \"\" {\n\tpolicy = \"read\"\n}\n",
    },
    Template {
        name: "builtin/node",
        description: "Gives the token or role permissions to register a node and to discover services",
        rules: "node \"{{.Name}}\" {\n\tpolicy = \"write\"\n}\nservice_prefix \"\" {\n\tpolicy = \"read\"\n}\n",
    },
    Template {
        name: "builtin/nomad-client",
        description: "Gives the token or role permissions for a Nomad client",
        rules: "agent_prefix \"\" {\n\tpolicy = \"read\"\n}\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}\n\
                service_prefix \"\" {\n\tpolicy = \"write\"\n}\nkey_prefix \"\" {\n\tpolicy = \"read\"\n}\n",
    },
    Template {
        name: "builtin/nomad-server",
        description: "Gives the token or role permissions for a Nomad server",
        rules: "acl = \"write\"\nagent_prefix \"\" {\n\tpolicy = \"read\"\n}\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}\n\
                service_prefix \"\" {\n\tpolicy = \"write\"\n}\n",
    },
    Template {
        name: "builtin/service",
        description: "Gives the token or role permissions to register a service and to discover services and nodes",
        rules: "service \"{{.Name}}\" {\n\tpolicy = \"write\"\n}\n\
                service \"{{.Name}}-sidecar-proxy\" {\n\tpolicy = \"write\"\n}\n\
                service_prefix \"\" {\n\tpolicy = \"read\"\n}\nnode_prefix \"\" {\n\tpolicy = \"read\"\n}\n",
    },
];

impl Template {
    /// The text in [`rules`](Self::rules) that is replaced by a name.
    pub const VARIABLE: &'static str = "{{.Name}}";

    /// The builtin template with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|template| template.name == name)
    }

    /// Whether the rules contain [`VARIABLE`](Self::VARIABLE): the template needs a name then.
    pub fn has_variable(&self) -> bool {
        self.rules.contains(Self::VARIABLE)
    }

    /// The JSON schema of the template's variables; empty without [`VARIABLE`](Self::VARIABLE).
    pub fn schema(&self) -> &'static str {
        if self.has_variable() { NAME_SCHEMA } else { "" }
    }

    /// The rules with `name` in the place of [`VARIABLE`](Self::VARIABLE). The caller must have
    /// checked the name by [`is_identity_name`]: another name could end the quoted text that it is
    /// in.
    pub fn render(&self, name: &str) -> String {
        self.rules.replace(Self::VARIABLE, name)
    }
}

/// Whether the name of a service or node can be put into a template: 1 to 256 ASCII letters,
/// digits, `-` and `_`, beginning and ending with a letter or digit.
pub fn is_identity_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let bytes = name.as_bytes();
    (1..=256).contains(&bytes.len())
        && bytes.iter().all(|byte| is_inner(*byte))
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
}

/// The rules of a service identity in a datacenter, as text. `None` if the identity is not for this
/// datacenter, or if its name is not valid.
pub(super) fn of_service(identity: &ServiceIdentity, datacenter: &str) -> Option<String> {
    includes_datacenter(&identity.datacenters, datacenter)
        .then(|| rendered("builtin/service", &identity.name))
        .flatten()
}

/// The rules of a node identity in a datacenter; `None` as in [`of_service`].
pub(super) fn of_node(identity: &NodeIdentity, datacenter: &str) -> Option<String> {
    (identity.datacenter == datacenter).then(|| rendered("builtin/node", &identity.name)).flatten()
}

/// The rules of a templated policy in a datacenter; `None` as in [`of_service`], and if there is no
/// such template.
pub(super) fn of_template(policy: &TemplatedPolicy, datacenter: &str) -> Option<String> {
    includes_datacenter(&policy.datacenters, datacenter).then(|| rendered(&policy.template, &policy.name)).flatten()
}

fn rendered(template: &str, name: &str) -> Option<String> {
    let template = Template::named(template)?;
    let is_usable = !template.has_variable() || is_identity_name(name);
    is_usable.then(|| template.render(name))
}

/// Whether a list of datacenters contains one; an empty list contains all.
pub(super) fn includes_datacenter(datacenters: &[String], datacenter: &str) -> bool {
    datacenters.is_empty() || datacenters.iter().any(|it| it == datacenter)
}

#[cfg(test)]
mod tests {
    use super::super::rules::parse;
    use super::*;

    #[test]
    fn every_template_is_rules() {
        for template in TEMPLATES {
            let rules = parse(&template.render("web")).unwrap();
            assert!(!rules.is_empty(), "{}", template.name);
            assert_eq!(template.has_variable(), template.rules != template.render("web"));
        }
    }

    #[test]
    fn no_name_ends_the_text_that_it_is_in() {
        for (name, taken) in [
            ("web", true),
            ("Web-1_a", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("a\"b", false),
            ("a b", false),
            ("ü", false),
        ] {
            assert_eq!(is_identity_name(name), taken, "{name}");
        }
        let identity = ServiceIdentity { name: "a\" { policy = \"write\" }".to_owned(), datacenters: Vec::new() };
        assert_eq!(of_service(&identity, "dc1"), None);
    }

    #[test]
    fn an_identity_counts_in_its_datacenters() {
        let service = |datacenters: &[&str]| ServiceIdentity {
            name: "web".to_owned(),
            datacenters: datacenters.iter().map(|it| (*it).to_owned()).collect(),
        };
        assert!(of_service(&service(&[]), "dc1").is_some());
        assert!(of_service(&service(&["dc2", "dc1"]), "dc1").is_some());
        assert!(of_service(&service(&["dc2"]), "dc1").is_none());
        let node = NodeIdentity { name: "n".to_owned(), datacenter: "dc2".to_owned() };
        assert!(of_node(&node, "dc1").is_none() && of_node(&node, "dc2").is_some());
    }
}
