//! Configurations as JSON objects.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Map, Value};

use crate::{Error, Result};

/// Parses a configuration. Serde alone would also accept a list of the fields in order.
///
/// # Errors
/// [`BadConfig`](Error::BadConfig) with the reason.
pub fn parse_config<C: DeserializeOwned>(json: &[u8]) -> Result<C> {
    let object = serde_json::from_slice::<Map<String, Value>>(json);
    object
        .and_then(|object| serde_json::from_value(Value::Object(object)))
        .map_err(|error| Error::BadConfig(error.to_string()))
}

/// Deserializes an optional configuration within another one.
pub(crate) fn deserialize_nested<'de, D, C>(deserializer: D) -> Result<Option<C>, D::Error>
where
    D: Deserializer<'de>,
    C: DeserializeOwned,
{
    let object = Option::<Map<String, Value>>::deserialize(deserializer)?;
    let config = object.map(|object| serde_json::from_value(Value::Object(object)));
    config.transpose().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{coordinator::panel::configs::Configs, learner::settings::Settings};

    #[test]
    fn config_must_be_json_object() {
        let read_settings = |json: &str| parse_config::<Settings>(json.as_bytes());
        assert_eq!(read_settings("{}").unwrap(), Settings::default());
        for json in ["[]", "[1]", "[0.1, 0.9]", "null", "5", "\"\"", ""] {
            let refused = read_settings(json);
            assert!(matches!(refused, Err(Error::BadConfig(_))), "{json}");
        }
    }

    #[test]
    fn nested_config_must_be_json_object() {
        let read_configs = |json: &str| parse_config::<Configs>(json.as_bytes());
        let nothing = read_configs(r#"{"collector": null}"#).unwrap();
        assert_eq!(nothing, Configs::default());
        let one = read_configs(r#"{"learner": {"num_epochs": 2}}"#).unwrap();
        assert_eq!(one.learner.unwrap().num_epochs, 2);
        for json in [
            "[]",
            "[[2], [1]]",
            r#"[{"num_workers": 2}, null]"#,
            r#"{"learner": [1]}"#,
            r#"{"collector": []}"#,
        ] {
            let refused = read_configs(json).unwrap_err().to_string();
            assert!(refused.contains("expected a map"), "{json}: {refused}");
        }
    }
}
