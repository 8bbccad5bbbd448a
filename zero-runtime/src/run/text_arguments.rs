//! Text arguments: options of a binary that trains a model of text, besides those of every model. Never acts on one.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::arguments::as_text;
use super::token_arguments::TokenArguments;
use crate::error::Error;
use zero_files::data::DataAs;

pub(super) const DATA: &str = "Data";

/// Arguments of models of text.
#[derive(Args, Clone, Debug, Serialize)]
pub struct TextArguments {
    /// Text to learn: a file, a directory, or a file of token ids; without it, the workspace's own sources
    #[arg(long, value_name = "PATH", help_heading = DATA)]
    #[serde(serialize_with = "as_text")]
    pub data: Option<PathBuf>,
    /// Read --data as text, bytes, or token ids of 2 or 4 bytes, whatever its name and content say; `ids` have 4 bytes if the
    /// vocabulary has more than 65,536
    #[arg(long, value_name = "WHAT", requires = "data", help_heading = DATA)]
    pub data_as: Option<DataAs>,
    /// Those of every model of tokens.
    #[command(flatten)]
    #[serde(flatten)]
    pub tokens: TokenArguments,
}

impl TextArguments {
    /// Rejects arguments that contradict one another.
    ///
    /// # Errors
    /// Z0350.
    pub fn check(&self) -> Result<(), Error> {
        if self.data_as == Some(DataAs::Bytes) && self.tokens.tokenizer.is_some() {
            return Err(Error::Argument {
                what: "--data-as bytes takes each byte for an id, and --tokenizer has ids of its own".to_owned(),
                help: "leave one of them out".to_owned(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn z0350_bytes_and_a_tokenizer() {
        #[derive(Parser, Debug)]
        struct OfText {
            #[command(flatten)]
            text: TextArguments,
        }
        let check = |arguments: &[&str]| OfText::parse_from(["train"].iter().chain(arguments)).text.check();
        let error = check(&["--data=a", "--data-as=bytes", "--tokenizer=b"]).expect_err("a contradiction").to_string();
        assert!(error.starts_with("error[Z0350]: --data-as bytes takes each byte for an id"), "{error}");
        assert!(check(&["--data=a", "--data-as=ids", "--tokenizer=b"]).is_ok());
        assert!(check(&["--tokenizer=b"]).is_ok());
    }
}
