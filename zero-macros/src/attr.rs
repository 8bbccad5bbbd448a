//! Attr: splits the tokens of `#[zero(...)]` into options, and finds attributes by name. Never reads a value.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Attribute, DeriveInput, LitStr, Path};
use zero_plan::DeviceKind;
use zero_plan::diagnostic::Diagnostic;

use crate::mistake::{Checked, Mistake};

/// The options of `#[zero(...)]` as written.
pub struct AttributeOptions {
    /// The path in `spec = "..."`.
    pub spec: Option<LitStr>,
    /// The path in `device = ...`, if it is a type and not a device that a spec can name.
    pub device: Option<Path>,
    /// All other options.
    pub inline: Vec<Inline>,
    /// Everything in the parentheses.
    tokens: TokenStream,
}

/// `name = value`.
pub struct Inline {
    name: Ident,
    value: TokenStream,
    tokens: TokenStream,
}

impl AttributeOptions {
    /// Options between commas. Their values are checked later, by the spec.
    pub fn parse(tokens: TokenStream) -> Checked<Self> {
        let mut options = Self { spec: None, device: None, inline: Vec::new(), tokens: tokens.clone() };
        let mut mistakes = Vec::new();
        let tokens: Vec<_> = tokens.into_iter().collect();
        for option in tokens.split(is_comma).filter(|option| !option.is_empty()) {
            let tokens: TokenStream = option.iter().cloned().collect();
            match option {
                [TokenTree::Ident(name), TokenTree::Punct(equals), value @ ..]
                    if equals.as_char() == '=' && !value.is_empty() =>
                {
                    if let Some(next) = second_option(value) {
                        mistakes.push(Mistake::unusable(
                            next,
                            format!("a comma is missing before `{next}`"),
                            "options are separated by commas: `#[zero(stage = 3, prefetch = 2)]`",
                        ));
                        continue;
                    }
                    let option = Inline { name: name.clone(), value: value.iter().cloned().collect(), tokens };
                    options.set(option).unwrap_or_else(|mistake| mistakes.push(mistake));
                }
                _ => mistakes.push(Mistake::unusable(
                    &tokens,
                    "an option of `#[zero(...)]` is a name, `=` and a value",
                    "write `#[zero(stage = 3, prefetch = 2)]`, or `#[zero(spec = \"specs/zero3.ron\")]`",
                )),
            }
        }
        if mistakes.is_empty() { Ok(options) } else { Err(mistakes) }
    }

    fn set(&mut self, option: Inline) -> Result<(), Mistake> {
        let own = own_device(&option);
        let is_twice = match option.name.to_string().as_str() {
            "spec" => self.spec.is_some(),
            "device" => {
                self.device.is_some() || own.is_some() && self.inline.iter().any(|other| other.name == "device")
            }
            // The parser of specs refuses any other option that is given twice, and two devices that specs can name.
            _ => false,
        };
        if is_twice {
            let (name, message) = (option.name.to_string(), format!("duplicate key `{}`", option.name));
            let problem = Diagnostic::new("Z0104", name, message).help("remove one of the two");
            return Err(Mistake::at(option.tokens, &problem));
        }
        match own {
            Some(path) => self.device = Some(path),
            None if option.name == "spec" => self.set_spec(option.value, &option.tokens)?,
            None => self.inline.push(option),
        }
        Ok(())
    }

    fn set_spec(&mut self, value: TokenStream, option: &TokenStream) -> Result<(), Mistake> {
        let found = value.to_string();
        let path = syn::parse2(value).map_err(|_| {
            let message = format!("`spec` expects a path in quotes, found `{found}`");
            Mistake::at(option, &Diagnostic::new("Z0103", "spec", message).help("write `spec = \"specs/zero3.ron\"`"))
        })?;
        self.spec = Some(path);
        Ok(())
    }

    /// Names and values of the inline options.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.inline.iter().map(|option| (option.name.to_string(), option.value.to_string()));
        pairs.collect()
    }

    /// A mistake in an inline option, placed at its tokens, or at the second occurrence if the option is given twice. A
    /// mistake about a missing option, or about no option, is placed at all tokens of the attribute.
    pub fn mistake(&self, problem: &Diagnostic) -> Mistake {
        let mut named = self.inline.iter().filter(|option| option.name == problem.key);
        let option = if problem.code == "Z0104" { named.next_back() } else { named.next() };
        Mistake::at(option.map_or(&self.tokens, |option| &option.tokens), problem)
    }

    /// The tokens that choose the spec.
    pub fn place(&self) -> TokenStream {
        self.spec.as_ref().map_or_else(|| self.tokens.clone(), ToTokens::to_token_stream)
    }
}

/// The type that an option names as the device: any path that is not a device of a spec.
fn own_device(option: &Inline) -> Option<Path> {
    let path: Path = syn::parse2(option.value.clone()).ok().filter(|_| option.name == "device")?;
    let is_built_in = path.get_ident().is_some_and(|name| DeviceKind::named(&name.to_string()).is_some());
    (!is_built_in).then_some(path)
}

/// The name of an option that begins within the value of another option.
fn second_option(value: &[TokenTree]) -> Option<&Ident> {
    value.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(name), TokenTree::Punct(equals)] if equals.as_char() == '=' => Some(name),
        _ => None,
    })
}

/// Whether a token is a comma.
pub fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}

/// The item under `#[zero]`; if it is not a type, the same tokens followed by the error.
pub fn item(tokens: TokenStream) -> Result<DeriveInput, TokenStream> {
    syn::parse2(tokens.clone()).map_err(|_| {
        let help = "write it in front of `struct Gpt { embed: Embedding<..>, .., head: LmHead<..> }`";
        let mistake = Mistake::unusable(TokenStream::new(), "`#[zero]` needs a struct with named fields", help);
        quote!(#mistake #tokens)
    })
}

/// The attributes with this name.
pub fn named<'a>(attributes: &'a [Attribute], name: &str) -> impl Iterator<Item = &'a Attribute> {
    attributes.iter().filter(move |attribute| attribute.path().is_ident(name))
}

/// Whether an attribute is `#[zero]`, under any path.
pub fn is_zero(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_cut_at_commas() {
        let options = AttributeOptions::parse(quote!(spec = "a.ron", stage = 3, memory = GiB(1),)).unwrap();
        assert_eq!(options.spec.unwrap().value(), "a.ron");
        let pairs: Vec<_> = options.inline.iter().map(|o| (o.name.to_string(), o.value.to_string())).collect();
        assert_eq!(pairs, [("stage".to_owned(), "3".to_owned()), ("memory".to_owned(), "GiB (1)".to_owned())]);
    }

    #[test]
    fn a_device_is_one_of_the_spec_s_or_a_type() {
        let read = |tokens| {
            let options = AttributeOptions::parse(tokens).unwrap();
            (options.device.map(|path| path.to_token_stream().to_string()), options.inline.len())
        };
        for built_in in [quote!(device = Cpu), quote!(device = "Cpu"), quote!(device = 3)] {
            assert_eq!(read(built_in), (None, 1));
        }
        for (own, path) in [
            (quote!(device = crate::naive::Naive), "crate :: naive :: Naive"),
            (quote!(device = Naive), "Naive"),
            (quote!(device = zero_runtime::device::Cpu), "zero_runtime :: device :: Cpu"),
        ] {
            assert_eq!(read(own), (Some(path.to_owned()), 0));
        }
        for twice in [
            quote!(device = a::B, device = c::D),
            quote!(device = Cpu, device = c::D),
            quote!(device = a::B, device = Cpu),
        ] {
            let mistakes = AttributeOptions::parse(twice).err().unwrap();
            assert!(mistakes.len() == 1 && mistakes[0].text.starts_with("[Z0104] duplicate key `device`"));
        }
    }

    #[test]
    fn what_is_no_option_is_found() {
        for (tokens, start) in [
            (quote!(3), "[Z0110] an option"),
            (quote!(stage), "[Z0110] an option"),
            (quote!(stage =), "[Z0110] an option"),
            (quote!(stage: 3), "[Z0110] an option"),
            (quote!(stage = 3 prefetch = 2), "[Z0110] a comma is missing before `prefetch`"),
            (quote!(stage = 3; prefetch = 2), "[Z0110] a comma is missing before `prefetch`"),
            (quote!(spec = "a.ron" stage = 3), "[Z0110] a comma is missing before `stage`"),
            (quote!(spec = 3), "[Z0103] `spec` expects a path in quotes, found `3`"),
            (quote!(spec = "a", spec = "b"), "[Z0104] duplicate key `spec`"),
        ] {
            let mistakes = AttributeOptions::parse(tokens).err().unwrap();
            assert_eq!(mistakes.len(), 1);
            assert!(mistakes[0].text.starts_with(start), "{}", mistakes[0].text);
        }
        assert_eq!(AttributeOptions::parse(quote!(3, stage)).err().unwrap().len(), 2);
    }
}
