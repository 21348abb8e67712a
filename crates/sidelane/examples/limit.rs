use sidelane::observe::{analysis::*, channel::*, clock::*, dte::Dte, handover::handover, observer::*, period::*, sample::Layout};
use std::sync::{Arc, atomic::{AtomicU64, AtomicBool, Ordering}};
use std::ptr::NonNull;
#[repr(align(64))] struct Line(AtomicU64);
fn pin(c: u32) { sidelane::lane::priority::pin_this_thread(&[c]).unwrap(); }
fn main() {
    let clock = Clock::calibrate().unwrap();
    let line: Arc<Line> = Arc::new(Line(AtomicU64::new(0)));
    for every in [200u64, 1000, 2000, 5000, 100000] {
        let stop = Arc::new(AtomicBool::new(false));
        let (l, s) = (line.clone(), stop.clone());
        let p = std::thread::spawn(move || { pin(1); let mut n=0u64; let mut due = cycles(); while !s.load(Ordering::Relaxed) { while cycles() < due {} due += every; n+=1; l.0.store(n % 7, Ordering::Relaxed); } n });
        pin(0);
        // bare
        for _ in 0..3 {
        let t0 = cycles(); let mut c = 0u64; let mut hist=[0u64;8];
        while cycles() - t0 < 400_000_000 { for _ in 0..10000 { let v = line.0.load(Ordering::Relaxed); hist[(v&7) as usize]+=1; c+=1; } }
        let bare_hist = (cycles()-t0) as f64 / c as f64;
        let t0 = cycles(); let mut c = 0u64;
        while cycles() - t0 < 400_000_000 { for _ in 0..10000 { let v = line.0.load(Ordering::Relaxed); std::hint::black_box(v); c+=1; } }
        let bare = (cycles()-t0) as f64 / c as f64;
        let keep: Arc<dyn std::any::Any + Send + Sync> = line.clone();
        let word = unsafe { Word::new(NonNull::from(&line.0).cast(), Width::U64, keep) };
        let controls = Arc::new(Controls::default());
        let (h, _t) = handover(1);
        let o = Observer { counters: vec![], tags: vec![Reader::Word(word)], thread: None, pace: Pace::new(Period::Max,&clock,1), handover: h, log: None, controls: controls.clone() };
        let recipe = Recipe { layout: Layout{counters:0,tags:1}, rates: vec![], dte: Dte::new(0.01), only_target:false };
        let a = Box::new(Analysis::new(recipe));
        let t = std::thread::spawn(move || { pin(0); let t0=cycles(); let r = o.run(a); (cycles()-t0, r.0) });
        std::thread::sleep(std::time::Duration::from_millis(150));
        let th = t.thread().clone(); controls.end(&th);
        let (cy, a) = t.join().unwrap();
        println!("every {every}: bare count {bare:.2} hist {bare_hist:.2} ours {:.2} (p50 {:?} p99 {:?}) turns {} samples {}", cy as f64 / a.samples as f64, a.periods.percentile(50.), a.periods.percentile(99.), a.tags[0].turns(), a.samples);
        }
        stop.store(true, Ordering::Relaxed);
        p.join().unwrap();
    }
}
