//! Tests of the names and initial values of tensors.

use super::*;

/// A part with a matrix and a vector.
fn linear(out: &mut Tensors) {
    out.add("weight", &[2, 3], Init::Normal(1.0));
    out.add("bias", &[2], Init::Zeros);
}

/// A tuple of two.
fn two(out: &mut Tensors) {
    out.scope("0", linear);
    out.scope("1", linear);
}

/// Own names and published ones, with a `T` where it is transposed.
fn names(of: impl FnOnce(&mut Tensors)) -> Vec<(String, String)> {
    let mut out = Tensors::default();
    of(&mut out);
    assert_eq!(out.misfit(), None);
    let published = |tensor: &Tensor| match &tensor.weights {
        Some(TensorNames { name, transposed }) => format!("{name}{}", if *transposed { " T" } else { "" }),
        None => "-".to_owned(),
    };
    out.into_list().iter().map(|tensor| (tensor.name.clone(), published(tensor))).collect()
}

fn expect(of: impl FnOnce(&mut Tensors), expected: &[(&str, &str)]) {
    let found = names(of);
    let found: Vec<_> = found.iter().map(|(own, published)| (own.as_str(), published.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn without_an_attribute_there_are_only_own_names() {
    expect(
        |out| out.unit(&["blocks", "{}"], &[], |out| out.scope("mlp", two)),
        &[("mlp.0.weight", "-"), ("mlp.0.bias", "-"), ("mlp.1.weight", "-"), ("mlp.1.bias", "-")],
    );
}

#[test]
fn one_name_is_put_before_those_of_all_tensors() {
    expect(
        |out| out.field("mlp", &[PublishedPart::Named("a.b")], two),
        &[
            ("mlp.0.weight", "a.b.0.weight"),
            ("mlp.0.bias", "a.b.0.bias"),
            ("mlp.1.weight", "a.b.1.weight"),
            ("mlp.1.bias", "a.b.1.bias"),
        ],
    );
    expect(
        |out| out.field("mlp", &[PublishedPart::Unnamed], linear),
        &[("mlp.weight", "weight"), ("mlp.bias", "bias")],
    );
}

#[test]
fn several_names_are_those_of_parts() {
    expect(
        |out| out.field("mlp", &[PublishedPart::Named("norm"), PublishedPart::Transposed("map")], two),
        &[
            ("mlp.0.weight", "norm.weight"),
            ("mlp.0.bias", "norm.bias"),
            ("mlp.1.weight", "map.weight T"),
            ("mlp.1.bias", "map.bias"),
        ],
    );
    expect(
        |out| {
            out.field("mlp", &[PublishedPart::Unnamed, PublishedPart::Named("map")], two);
            out.field("end", &[], linear);
        },
        &[
            ("mlp.0.weight", "weight"),
            ("mlp.0.bias", "bias"),
            ("mlp.1.weight", "map.weight"),
            ("mlp.1.bias", "map.bias"),
            ("end.weight", "-"),
            ("end.bias", "-"),
        ],
    );
}

#[test]
fn names_of_tensors_are_whole() {
    let weights = &[PublishedPart::Transposed("w"), PublishedPart::Unnamed];
    expect(|out| out.unit(&["map"], weights, linear), &[("weight", "w T"), ("bias", "bias")]);
    let bare = &[PublishedPart::Named("wte.weight"), PublishedPart::Named("wpe.weight")];
    expect(|out| out.unit(&["embed"], bare, linear), &[("weight", "wte.weight"), ("bias", "wpe.weight")]);
}

#[test]
fn names_are_joined_from_the_outside_in() {
    let block = |out: &mut Tensors| {
        out.field("mix", &[PublishedPart::Named("norm"), PublishedPart::Named("attn")], two);
        out.scope("mlp", linear);
    };
    let expected = |path: &str| {
        let own = ["mix.0.weight", "mix.0.bias", "mix.1.weight", "mix.1.bias", "mlp.weight", "mlp.bias"];
        let ends = ["norm.weight", "norm.bias", "attn.weight", "attn.bias", "mlp.weight", "mlp.bias"];
        own.into_iter().zip(ends).map(|(own, end)| (own.to_owned(), format!("{path}.{end}"))).collect::<Vec<_>>()
    };
    assert_eq!(names(|out| out.unit(&["blocks", "{}"], &[PublishedPart::Named("h.{}")], block)), expected("h.{}"));
    // An attribute inside makes the names of the fields outside part of the path.
    let found = names(|out| out.unit(&["blocks", "{}"], &[], block));
    assert_eq!((found[..4].to_vec(), &*found[4].1), (expected("blocks.{}")[..4].to_vec(), "-"));
    // A list outside names the parts that have lists of their own, too.
    let found = names(|out| out.unit(&["blocks"], &[PublishedPart::Transposed("a"), PublishedPart::Named("b")], block));
    let published: Vec<_> = found.iter().map(|(_, published)| published.as_str()).collect();
    assert_eq!(published, ["a.norm.weight T", "a.norm.bias", "a.attn.weight T", "a.attn.bias", "b.weight", "b.bias"]);
}

#[test]
fn a_list_has_a_name_for_each_part() {
    const THREE: &[PublishedPart] = &[PublishedPart::Unnamed; 3];
    let misfit = |names: &'static [PublishedPart], of: fn(&mut Tensors)| {
        let mut out = Tensors::default();
        out.unit(&["blocks"], &[], |out| out.scope("a", |out| out.field("b", names, of)));
        out.misfit().map(|NamesMisfit { within, names, parts }| (within.clone(), *names, parts.clone()))
    };
    assert_eq!(misfit(&THREE[..2], two), None);
    assert_eq!(misfit(&THREE[..1], two), None);
    assert_eq!(misfit(THREE, two), Some(("a.b".to_owned(), 3, vec!["0", "1"])));
    assert_eq!(misfit(&THREE[..2], |_| {}), Some(("a.b".to_owned(), 2, vec![])));
    let three = |out: &mut Tensors| {
        two(out);
        out.scope("2", |_| {});
    };
    assert_eq!(misfit(&THREE[..2], three), Some(("a.b".to_owned(), 2, vec!["0", "1", "2"])));
    // The list does not apply inside of a part.
    assert_eq!(misfit(&THREE[..2], |out| (0..2).for_each(|_| out.scope("c", two))), None);
}

fn deviations(of: impl FnOnce(&mut Tensors)) -> Vec<Init> {
    let mut out = Tensors::default();
    of(&mut out);
    out.into_list().into_iter().map(|tensor| tensor.init).collect()
}

#[test]
fn matrices_that_are_drawn_get_the_deviation_of_the_field() {
    use Init::{Normal, Ones, Zeros};
    let odd = |out: &mut Tensors| {
        two(out);
        out.add("gain", &[3], Normal(3.0));
        out.add("ones", &[2, 2], Ones);
    };
    let found = deviations(|out| {
        linear(out);
        out.initial(0.5, None, odd);
    });
    assert_eq!(found, [Normal(1.0), Zeros, Normal(0.5), Zeros, Normal(0.5), Zeros, Normal(3.0), Ones]);
    let found = deviations(|out| out.initial(0.5, Some(0.25), odd));
    assert_eq!(found, [Normal(0.5), Zeros, Normal(0.25), Zeros, Normal(3.0), Ones]);
    assert_eq!(deviations(|out| out.initial(0.5, Some(0.25), |_| {})), []);
}

#[test]
fn what_is_said_inside_stays() {
    use Init::{Normal, Zeros};
    let found = deviations(|out| {
        out.initial(0.5, Some(0.25), |out| {
            linear(out);
            out.initial(4.0, Some(8.0), two);
        });
    });
    assert_eq!(found, [Normal(0.5), Zeros, Normal(4.0), Zeros, Normal(8.0), Zeros]);
    let found = deviations(|out| {
        out.initial(0.5, Some(0.25), |out| {
            out.initial(4.0, None, linear);
            linear(out);
        });
    });
    assert_eq!(found, [Normal(4.0), Zeros, Normal(0.25), Zeros]);
}

#[test]
fn matrices_of_hidden_layers_lie_where_their_rows_do() {
    let mut out = Tensors::default();
    linear(&mut out);
    out.scope("attention", |out| out.hidden("qkv", &[4, 2, 2], 3, Init::Zeros));
    out.embedding("table", &[5, 3], Init::Zeros);
    out.hidden("out", &[3], 4, Init::Zeros);
    let list = out.into_list();
    let matrices: Vec<Vec<HiddenMatrix>> = list.iter().map(|tensor| tensor.hidden_matrices().collect()).collect();
    let at = |start, rows, columns| HiddenMatrix { start, rows, columns };
    assert_eq!(matrices, [vec![], vec![], vec![at(8, 4, 3), at(20, 2, 3), at(26, 2, 3)], vec![], vec![at(47, 3, 4)]]);
    assert_eq!((&*list[2].name, &list[2].shape[..]), ("attention.qkv", &[8, 3][..]));
}
