//! A double ring of hexagonal sites (3GPP TR 25.814, section A.2.1: a centre, a ring of 6, a ring of 12),
//! of which the inner seven serve users, and users who walk about by random way-points (D. B. Johnson
//! and D. A. Maltz, "Dynamic source routing in ad hoc wireless networks", 1996; here without pauses).

use midspan_units::Span;

use crate::random::Random;

/// All sites; each has one cell, with an omnidirectional antenna.
pub(crate) const SITES: usize = 19;

/// Of these the first ones serve users. The others only interfere.
pub(crate) const SERVING: usize = 7;

/// Metres east and north of the centre.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Point {
    pub(crate) fn distance(self, other: Point) -> f64 {
        let (x, y) = (self.x - other.x, self.y - other.y);
        (x * x + y * y).sqrt()
    }
}

/// Where the sites are, the centre first, then ring by ring.
#[derive(Debug, Clone)]
pub(crate) struct Sites {
    pub(crate) places: [Point; SITES],
    /// From a site to the next one.
    distance: f64,
}

/// Half the root of three: the height of a row of hexagons over their distance.
const ROW: f64 = 0.866_025_403_784_438_6;

impl Sites {
    pub(crate) fn new(distance: f64) -> Sites {
        let mut places = [Point::default(); SITES];
        let rings = (0..=2i32).flat_map(|ring| {
            let axis = move || -ring..=ring;
            axis()
                .flat_map(move |q| axis().map(move |r| (q, r)))
                .filter(move |(q, r)| q.abs().max(r.abs()).max((q + r).abs()) == ring)
        });
        for (place, (q, r)) in places.iter_mut().zip(rings) {
            *place = Point {
                x: distance * (f64::from(q) + f64::from(r) / 2.0),
                y: distance * ROW * f64::from(r),
            };
        }
        Sites { places, distance }
    }

    /// The site that is nearest.
    pub(crate) fn nearest(&self, point: Point) -> usize {
        let mut nearest = 0;
        for site in 1..SITES {
            if point.distance(self.places[site]) < point.distance(self.places[nearest]) {
                nearest = site;
            }
        }
        nearest
    }

    /// Anywhere in the hexagon about a site, each place being equally likely.
    pub(crate) fn anywhere_in(&self, site: usize, random: &mut Random) -> Point {
        let mut offset = || (uniform(random) - 0.5) * 2.0 * self.distance / (2.0 * ROW);
        loop {
            let centre = self.places[site];
            let point = Point { x: centre.x + offset(), y: centre.y + offset() };
            if self.nearest(point) == site {
                return point;
            }
        }
    }

    /// Anywhere in the hexagons of the cells that serve.
    pub(crate) fn anywhere(&self, random: &mut Random) -> Point {
        let site = (uniform(random) * SERVING as f64) as usize;
        self.anywhere_in(site, random)
    }
}

/// From 0 up to and without 1.
pub(crate) fn uniform(random: &mut Random) -> f64 {
    f64::from(random.draw()) / 4_294_967_296.0
}

/// Someone who walks straight to a place, and then to another.
#[derive(Debug, Clone)]
pub(crate) struct Walker {
    pub(crate) at: Point,
    towards: Point,
    /// Metres per second.
    speed: f64,
}

impl Walker {
    pub(crate) fn new(at: Point, speed: f64, sites: &Sites, random: &mut Random) -> Walker {
        Walker { at, towards: sites.anywhere(random), speed }
    }

    /// Walks on for so long, and answers how far that is.
    pub(crate) fn walk(&mut self, time: Span, sites: &Sites, random: &mut Random) -> f64 {
        let way = self.speed * time.as_secs_f64();
        let mut rest = way;
        loop {
            let left = self.at.distance(self.towards);
            if left > rest {
                let share = rest / left;
                self.at.x += (self.towards.x - self.at.x) * share;
                self.at.y += (self.towards.y - self.at.y) * share;
                return way;
            }
            rest -= left;
            self.at = self.towards;
            self.towards = sites.anywhere(random);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    /// Around the centre six sites at the distance D; of the outer twelve six at 2 D, six at root 3 D.
    #[test]
    fn the_rings_are_as_in_the_report() {
        let sites = Sites::new(500.0);
        let away = |site: usize| sites.places[site].distance(sites.places[0]);
        assert!(near(away(0), 0.0));
        assert!((1..7).all(|site| near(away(site), 500.0)));
        let outer = |distance: f64| (7..19).filter(|site| near(away(*site), distance)).count();
        assert_eq!((outer(1000.0), outer(500.0 * 3f64.sqrt())), (6, 6));
        // Every inner site has six neighbours at D.
        for site in 0..SERVING {
            let distance = |other: &Point| near(other.distance(sites.places[site]), 500.0);
            assert_eq!(sites.places.iter().filter(|other| distance(other)).count(), 6);
        }
    }

    #[test]
    fn places_are_spread_over_the_whole_hexagon() {
        let (sites, mut random) = (Sites::new(500.0), Random::new(1, 0));
        let points: Vec<f64> = (0..4000)
            .map(|_| sites.anywhere_in(3, &mut random).distance(sites.places[3]))
            .collect();
        // The corners are at D / root 3. Of a hexagon's area, pi / (2 root 3) is in its inner circle.
        assert!(points.iter().all(|distance| *distance < 288.7));
        let inner = points.iter().filter(|distance| **distance < 250.0).count() as f64 / 4000.0;
        assert!((inner - 0.907).abs() < 0.02, "{inner}");
    }

    #[test]
    fn a_walker_goes_at_its_speed_and_stays_inside() {
        let (sites, mut random) = (Sites::new(500.0), Random::new(2, 0));
        let mut walker = Walker::new(sites.places[0], 10.0, &sites, &mut random);
        for _ in 0..5000 {
            let before = walker.at;
            assert!(near(walker.walk(Span::from_millis(200), &sites, &mut random), 2.0));
            assert!(walker.at.distance(before) < 2.0 + 1e-9);
            assert!(
                sites.nearest(walker.at) < SERVING || walker.at.distance(sites.places[0]) < 790.0
            );
        }
        let mut still = Walker::new(sites.places[0], 0.0, &sites, &mut random);
        still.walk(Span::from_secs(100), &sites, &mut random);
        assert_eq!(still.at, sites.places[0]);
    }
}
