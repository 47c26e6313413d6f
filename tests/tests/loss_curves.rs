//! Losses over steps. All fixtures for fifty steps: `make loss-curves`.

use msc::options::Options;
use msc_tests::curves::{deviation, exact, reference, trained};
use msc_tests::fixture;
use std::path::PathBuf;

const STEPS: usize = 10;

#[test]
fn a_step_by_pytorch_is_followed() {
    let dir = fixture("llama_torchxla_tiny_const");
    let want = reference(&dir).expect("losses");
    let plan = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("curve.bin");
    let got = trained(&dir, &Options::default(), STEPS, &want.outputs, &plan).expect("trains");
    assert_eq!(got.values.len(), STEPS);
    // The reference is eager PyTorch: another order of sums in every product.
    let d = deviation(&got.values, &want.values);
    assert!(d < 2e-6, "{d:e}");
    // It is the state that is followed: the loss of the first step alone is far away after ten.
    let still: Vec<Vec<f64>> = vec![want.values[0].clone(); STEPS];
    assert!(deviation(&still, &want.values) > 1e-3);
    let exact = exact(&dir, 2, &want.outputs).expect("runs");
    assert!(deviation(&got.values, &exact) < 2e-6);
}

#[test]
fn deviations() {
    let a = [vec![1.0, 2.0], vec![4.0, 8.0]];
    assert_eq!(deviation(&a, &a), 0.0);
    assert_eq!(deviation(&a, &[vec![1.0, 2.0], vec![5.0, 8.0]]), 0.2);
    // As far as both go; what is not a number is infinitely far.
    assert_eq!(deviation(&a, &a[..1]), 0.0);
    assert_eq!(deviation(&[vec![f64::NAN]], &[vec![1.0]]), f64::INFINITY);
}
