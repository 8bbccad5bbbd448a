//! Tests of a model's expansion, as text.

use std::path::PathBuf;

use syn::parse_quote;
use zero_plan::spec::ModelSize;

use super::*;
use crate::choice::SpecFile;
use crate::valid;

fn expanded(item: &DeriveInput, choice: &Choice, has_text: bool) -> String {
    let environment = Environment {
        package: PathBuf::new(),
        directory: PathBuf::new(),
        spec: None,
        has_text,
        serves: false,
        size: ModelSize::default().variables(),
        shapes: vec![],
    };
    model(item, &valid::model(item).unwrap(), choice, &environment).to_string()
}

fn choice(file: Option<PathBuf>) -> Choice {
    let spec = zero_plan::spec::parse("(mesh: (zero: 4), zero: (stage: 3, prefetch: 2))").unwrap();
    let file = file.map(|path| SpecFile { path, shown: "specs/a.ron".to_owned(), text: String::new() });
    let given = vec![ChosenKey { path: "zero.stage", value: "3".to_owned(), place: (4, 2) }];
    Choice { config: spec.config(), spec, device: None, file, given }
}

#[test]
fn a_model_is_one_chain_and_one_plan() {
    let item = parse_quote! {
        pub struct Gpt { embed: Embedding<65, 8, 4>, blocks: [Block; 6], r#final: Norm, #[tied(embed)] head: Head<4> }
    };
    let spec_text = choice(None).spec.to_string();
    let expected = quote! {
        #[allow(dead_code, clippy::type_complexity)]
        pub struct Gpt { embed: Embedding<65, 8, 4>, blocks: [Block; 6], r#final: Norm, head: Head<4> }

        const _: () = {
            const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_SPEC");
            const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_TEXT");
            const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_PROBE");
            const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_SERVE");

            impl ::zero_runtime::__private::layer::Shape for Gpt {
                type Device = ::zero_runtime::device::Cpu;
                type Compute = f32;
                const SEQUENCES: usize = 4;
                const LENGTH: usize = 256;
                const ORIGIN: ::zero_runtime::plan::Origin = ::zero_runtime::plan::Origin {
                    source: ::zero_runtime::plan::Source::Attribute,
                    given: &[::zero_runtime::plan::Given { path: "zero.stage", value: "3", line: 4, column: 2 }]
                };
            }

            const __WHOLE: ::zero_runtime::__private::model::Whole<Gpt, 4> = {
                let __fields =
                    ::zero_runtime::__private::model::Fields::<Gpt, (), 4>::first::<Embedding<65, 8, 4> >("embed");
                let __fields = __fields.repeated::<Block>("blocks", 6);
                let __fields = __fields.then::<Norm>("final");
                let __fields = __fields.tied::<Head<4>, Embedding<65, 8, 4> >("head", 0, true);
                ::zero_runtime::__private::model::Fields::end(__fields, <Head<4> as ::zero_runtime::__private::layer::Head<Gpt> >::CODE)
            };

            static __PLAN: ::zero_runtime::plan::Plan<'static> = ::zero_runtime::plan::static_plan!(
                "Gpt",
                ::zero_runtime::plan::Config {
                    mesh: ::zero_runtime::plan::Mesh::of_zero(4),
                    stage: 3,
                    prefetch: 2,
                    bucket_bytes: 26214400,
                    sequences: 4,
                    length: 256,
                    ..::zero_runtime::plan::Config::PLAIN
                },
                &__WHOLE.fields.sizes,
                <Gpt as ::zero_runtime::__private::layer::Shape>::ORIGIN
            );

            static __PROGRAM: ::zero_runtime::__private::model::Program<::zero_runtime::__private::model::DeviceOf<Gpt> > =
                ::zero_runtime::__private::model::Program {
                    name: ::core::concat!(::core::module_path!(), "::", "Gpt"),
                    directory: ::core::env!("CARGO_MANIFEST_DIR"),
                    spec: "#[zero]",
                    spec_text: #spec_text,
                    ..__WHOLE.program(&__PLAN)
                };

            impl ::zero_runtime::__private::model::Model for Gpt {
                type Input = <Embedding<65, 8, 4> as ::zero_runtime::__private::layer::Entry>::Input;
                type Target = <Head<4> as ::zero_runtime::__private::layer::Head<Gpt> >::Target;
                type Shape = Self;
                const PROGRAM: &'static ::zero_runtime::__private::model::Program<::zero_runtime::__private::model::DeviceOf<Self> > = &__PROGRAM;
            }
        };
    };
    assert_eq!(packed(&expanded(&item, &choice(None), false)), packed(&expected.to_string()));
}

#[test]
fn a_first_array_and_a_head_of_its_own() {
    let item = parse_quote!(
        struct Mlp {
            hidden: [Linear<8, 8>; N],
            head: Head<8>,
        }
    );
    let expanded = packed(&expanded(&item, &choice(None), false));
    assert!(expanded.contains(&packed(r#"first_repeated::<Linear<8, 8>>("hidden", N)"#)));
    assert!(expanded.contains(&packed(r#"let __fields = __fields.then::<Head<8>>("head"); ::zero_runtime::__private::model::Fields::end(__fields, <Head<8> as ::zero_runtime::__private::layer::Head<Mlp> >::CODE)"#)));
    assert!(expanded.contains(&packed("type Input = <Linear<8, 8> as")));
}

#[test]
fn what_attributes_say_is_written_after_their_fields() {
    let item = parse_quote! {
        #[config({ "dim": D, "kinds": [null, 3] })]
        struct Gpt {
            #[alternating]
            #[weights("first.{}")]
            first: [(A, B, C); 2],
            #[alternating]
            #[init(0.5, last = STD)]
            blocks: [(A, B); N],
            table: T,
            #[tied(table, if D == 2)]
            #[weights("head")]
            head: Head<4>,
        }
    };
    let expanded = packed(&expanded(&item, &choice(None), false));
    let statements = quote! {
        const __WHOLE: ::zero_runtime::__private::model::Whole<Gpt, 7> = {
            let __fields = ::zero_runtime::__private::model::Fields::<Gpt, (), 7>::first_alternating::<A>("first", 2, 3)
                .then::<B>()
                .last::<C>();
            let __fields = __fields.weights(&[::zero_runtime::__private::layer::PublishedPart::Named("first.{}")]);
            let __fields = __fields.alternating::<A>("blocks", N, 2).last::<B>();
            let __fields = __fields.init(|| (0.5, ::core::option::Option::Some(STD)));
            let __fields = __fields.then::<T>("table");
            let __fields = __fields.tied::<Head<4>, T>("head", 5, D == 2);
            let __fields = __fields.weights(&[::zero_runtime::__private::layer::PublishedPart::Named("head")]);
            ::zero_runtime::__private::model::Fields::end(__fields, <Head<4> as ::zero_runtime::__private::layer::Head<Gpt> >::CODE)
        };
    };
    assert!(expanded.contains(&packed(&statements.to_string())), "{expanded}");
    let config = quote! {
        config: || ::zero_runtime::__private::serde_json::Value::Object(
                [
                    (::std::string::String::from("dim"), ::zero_runtime::__private::serde_json::json!(D)),
                    (
                        ::std::string::String::from("kinds"),
                        ::zero_runtime::__private::serde_json::Value::Array(
                            [
                                ::zero_runtime::__private::serde_json::Value::Null,
                                ::zero_runtime::__private::serde_json::json!(3)
                            ]
                            .into()
                        )
                    )
                ]
                .into_iter()
                .collect()
            ),
    };
    assert!(expanded.contains(&packed(&config.to_string())), "{expanded}");
    assert!(!expanded.contains("#[config"), "{expanded}");
}

#[test]
fn other_shapes_have_sizes_and_no_code() {
    let item = parse_quote!(
        struct Mlp {
            embed: Embedding<8, 8>,
            head: Head<8>,
        }
    );
    let environment = Environment {
        package: PathBuf::new(),
        directory: PathBuf::new(),
        spec: None,
        has_text: false,
        serves: false,
        size: ModelSize::default().variables(),
        shapes: vec![(Width::BF16, 2, 16), (Width::F32, 4, 16)],
    };
    let expanded = packed(&model(&item, &valid::model(&item).unwrap(), &choice(None), &environment).to_string());
    assert_eq!(expanded.matches("struct__Probe;").count(), 2);
    for part in [
        "typeCompute=::zero_runtime::device::bf16;constSEQUENCES:usize=2;constLENGTH:usize=16;",
        "<Head<8>as::zero_runtime::__private::layer::Head<__Probe>>::CODE",
        "compute:::zero_runtime::plan::Width::BF16,sequences:2,length:16,fields:&__SIZES,",
        "compute:::zero_runtime::plan::Width::F32,sequences:4,length:16,fields:&__SIZES,",
    ] {
        assert!(expanded.contains(part), "no `{part}` in {expanded}");
    }
    assert!(!packed(&self::expanded(&item, &choice(None), false)).contains("probes"));
}

#[test]
fn a_device_of_ones_own_is_named_once() {
    let item = parse_quote!(
        struct Mlp {
            embed: Embedding<8, 8>,
            head: Head<8>,
        }
    );
    let own = Choice { device: Some(parse_quote!(crate::naive::Naive)), ..choice(None) };
    let (own, built_in) = (packed(&expanded(&item, &own, false)), packed(&expanded(&item, &choice(None), false)));
    assert!(own.contains("typeDevice=crate::naive::Naive;"));
    assert_eq!(own.replace("crate::naive::Naive", "::zero_runtime::device::Cpu"), built_in);
    assert_eq!(built_in.matches("device::Cpu").count(), 1);
}

#[test]
fn files_are_part_of_the_build() {
    let item = parse_quote!(
        struct Mlp {
            embed: Embedding<8, 8>,
            head: Head<8>,
        }
    );
    let expanded = packed(&expanded(&item, &choice(Some("/specs/a.ron".into())), true));
    assert!(expanded.contains(&packed(r#"spec_text: ::core::include_str!("/specs/a.ron"),"#)));
    assert!(expanded.contains(&packed(r#"source: ::zero_runtime::plan::Source::File("specs/a.ron")"#)));
    assert!(expanded.contains(&packed(r#"spec: "specs/a.ron","#)));
    assert!(expanded.contains("has_text:true,"));
}

/// Removes blanks, which depend on how the tokens were joined.
fn packed(tokens: &str) -> String {
    tokens.split_whitespace().collect()
}
