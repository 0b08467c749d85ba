use serde_json::json;

use super::*;

fn input() -> Value {
    json!({
        "kind": "List",
        "items": [
            {"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "a-b"}},
             "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]}},
            {"kind": "None", "metadata": {"name": "127.0.0.2"},
             "status": {"capacity": {"cpu": "8"}, "addresses": [
                 {"type": "LegacyHostIP", "address": "127.0.0.2"}, {"type": "another", "address": "127.0.0.3"}]}},
        ],
        "users": [
            {"name": "myself", "user": {}},
            {"name": "e2e", "user": {"username": "admin", "password": "secret"}, "age": 5},
        ],
    })
}

fn rendered(template: &str) -> String {
    match Template::parse(template).and_then(|template| template.render(&input())) {
        Ok(text) => text,
        Err(error) => format!("error: {error}"),
    }
}

/// The examples of kubectl's documentation, and what scripts use most.
#[test]
fn templates_match_kubectl() {
    for (template, expected) in [
        ("kind is {.kind}", "kind is List"),
        ("{$.kind}{@.kind}", "ListList"),
        ("{['kind']}", "List"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[0:2].name}", "myself e2e"),
        ("{.users[-1:].name}", "e2e"),
        (
            "{.items[*]['metadata.name', 'status.capacity']}",
            r#"127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}"#,
        ),
        ("{.users[0,1].name}", "myself e2e"),
        (r#"{.users[?(@.name=="e2e")].user.password}"#, "secret"),
        ("{.users[?(@.name=='e2e')].user.password}", "secret"),
        ("{.users[?(@.age)].name}", "e2e"),
        ("{.users[?(@.age > 4)].name}", "e2e"),
        ("{.users[?(@.age != 4)].name}", "e2e"),
        (
            "{.items[*].status.addresses[?(@.type==\"another\")].address}",
            "127.0.0.3",
        ),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}] {end}",
            "[127.0.0.1, 4] [127.0.0.2, 8] ",
        ),
        (
            r#"{range .items[*]}{.metadata.name}{"\t"}{range .status.addresses[*]}{.address};{end}{"\n"}{end}"#,
            "127.0.0.1\t127.0.0.1;\n127.0.0.2\t127.0.0.2;127.0.0.3;\n",
        ),
        (
            "{.items[0].metadata.labels.kubernetes\\.io/hostname}",
            "a-b",
        ),
        (
            "{.items[0].metadata.labels['kubernetes\\.io/hostname']}",
            "a-b",
        ),
        ("{'}'}{\"{\"}", "}{"),
        ("{.nothing.here}", ""),
        (".kind", ".kind"),
        ("{.users[1].age}{.users[0].user}", "5{}"),
        ("{.items.*.kind}", "None None"),
        ("{..capacity.cpu}", "4 8"),
    ] {
        assert_eq!(rendered(template), expected, "{template}");
    }
}

#[test]
fn template_mistakes_are_errors() {
    for (template, expected) in [
        ("{.kind", "error parsing jsonpath {.kind, unclosed action"),
        (
            "{.items[*}",
            "error parsing jsonpath {.items[*}, unterminated array",
        ),
        ("{range .items[*]}x", "unclosed range"),
        ("{end}", "not in range"),
        ("{.items[x]}", "invalid array index x"),
        ("{%}", "unrecognized character in action: '%'"),
        (
            "{.users[7].name}",
            "error executing jsonpath \"{.users[7].name}\": Error executing template: array index out of bounds: index 7, length 2",
        ),
    ] {
        let message = rendered(template);
        assert!(
            message.starts_with("error: ") && message.contains(expected),
            "{template}: {message}"
        );
    }
}

#[test]
fn relaxed_path_omits_braces_and_dot() {
    for path in [".users[0].name", "{.users[0].name}", "users[0].name"] {
        let path = Path::parse_relaxed(path).unwrap();
        assert_eq!(path.find(&input()).unwrap(), [&json!("myself")]);
    }
    let error = Path::parse_relaxed("{.users").unwrap_err().to_string();
    assert_eq!(
        error,
        "unexpected path string \"{.users\": a brace is not closed"
    );
}

#[test]
fn values_render_as_json_lists() {
    let template = Template::parse("{.users[*].name}{range .items[*]}{.status.capacity}{end}{.no}");
    let text = template.and_then(|template| template.render_json(&input()));
    assert_eq!(
        text.unwrap(),
        r#"[
    "myself",
    "e2e"
]
[
    {
        "cpu": "4"
    }
]
[
    {
        "cpu": "8"
    }
]
[]
"#
    );
}
