//! Fields: takes the keys of a request one by one. What nobody has taken in the end is refused by name, so that no key is ignored.

use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::refusal::Refusal;

/// The keys of a request that nobody has taken yet.
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Those of a body.
    pub fn of(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Refusal { param: None, ..Refusal::invalid("", "the body is no object of JSON") }),
            Err(error) => Err(Refusal { param: None, ..Refusal::invalid("", format!("the body is no JSON: {error}")) }),
        }
    }

    /// The value of a key; none if it is absent or null.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, Refusal> {
        match self.0.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| Refusal::invalid(key, format!("`{key}` is not as expected: {error}"))),
        }
    }

    /// A number within bounds.
    pub fn take_within<T>(&mut self, key: &str, bounds: RangeInclusive<T>) -> Result<Option<T>, Refusal>
    where
        T: DeserializeOwned + PartialOrd + std::fmt::Display,
    {
        let found = self.take::<T>(key)?;
        match found {
            Some(number) if !bounds.contains(&number) => {
                let (least, most) = (bounds.start(), bounds.end());
                Err(Refusal::invalid(key, format!("`{key}` is {number}, expected {least} to {most}")))
            }
            found => Ok(found),
        }
    }

    /// Takes a key that has to be as if it were not there, because what it asks for is not done.
    pub fn take_neutral(&mut self, key: &str, neutral: &[Value]) -> Result<(), Refusal> {
        match self.0.remove(key) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if neutral.contains(&value) => Ok(()),
            Some(value) => Err(Refusal::invalid(key, format!("`{key}`: {value} is not supported, leave it out"))),
        }
    }

    /// Refuses what nobody has taken.
    pub fn finish(self) -> Result<(), Refusal> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => {
                Err(Refusal::invalid(key, format!("`{key}` is unknown, leave it out")).coded("unknown_parameter"))
            }
        }
    }
}
