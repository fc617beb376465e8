//! `/v1/acl/templated-policies` and `/v1/acl/templated-policy`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::{absent, content_hash, links, require_read};
use headwater_node::{TEMPLATES, Template};

fn show(template: &Template) -> Value {
    json!({
        "TemplateName": template.name,
        "Schema": template.schema(),
        "Template": template.rules,
        "Description": template.description,
    })
}

/// Every template of policies, by name.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let all: BTreeMap<&str, Value> = TEMPLATES.iter().map(|template| (template.name, show(template))).collect();
    Ok(call.answer(&all))
}

/// One template of policies, by its name in the path.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let name = call.rest("Missing templated policy Name")?;
    let template = Template::named(name).ok_or_else(|| absent("Templated policy"))?;
    Ok(call.answer(&show(template)))
}

/// The policy that a template gives for the variables in the body. Nothing is stored.
pub(crate) async fn preview(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let name = call.rest("Missing templated policy Name")?.to_owned();
    let template = Template::named(&name).ok_or_else(|| absent("Templated policy"))?;
    let json = call.json_or_nothing()?;
    let body = Object::of(&json)?;
    // The variables are the whole body, or its member `TemplateVariables`.
    let wrapped = json!({"TemplateVariables": {"Name": body.text("Name")?}});
    let body = if body.get("TemplateVariables").is_some() { body } else { Object::of(&wrapped)? };
    let used = links::read_template(&body, &name)?;
    let rules = template.render(&used.name);
    let shown_name = format!("synthetic-policy-{}", content_hash(&json!([rules])));
    Ok(call.answer(&json!({
        "ID": "", "Name": shown_name, "Description": format!("synthetic policy generated from templated policy: {name}"),
        "Rules": rules, "Hash": content_hash(&json!([rules])), "CreateIndex": 0, "ModifyIndex": 0,
    })))
}
