/** Synthetic answers: a truth, and estimates that close in on it. Same fraction, same answer. */

const NATIONS = [
  "FRANCE",
  "GERMANY",
  "JAPAN",
  "KENYA",
  "PERU",
  "CHINA",
  "INDIA",
  "BRAZIL",
  "EGYPT",
  "CANADA",
];
const MODES = ["AIR", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK", "REG AIR"];

/** Return a number in [-1, 1] that depends on nothing but the seed. */
function noise(seed) {
  const x = Math.sin(seed * 12.9898) * 43758.5453;
  return 2 * (x - Math.floor(x)) - 1;
}

/** Return a cell [value, low, high, certified] of a truth, as known after a fraction of the rows. */
function estimate(truth, fraction, seed, scale = 1, certified = true) {
  if (fraction >= 1) return [truth, truth, truth, true];
  const half = Math.abs(truth) * 0.018 * scale * Math.sqrt((1 - fraction) / fraction);
  const wander = 0.6 * noise(seed) + 0.25 * noise(seed + Math.floor(Math.log2(fraction) * 8));
  const value = truth + half * wander;
  return [value, value - half, value + half, certified];
}

const column = (name, kind, type) => ({ name, kind, type });
const answer = (columns, rows, more = {}) => ({ columns, rows, ranked: false, truncated: null, ...more });

const MAKERS = {
  modes: (f) =>
    answer(
      [
        column("l_shipmode", "key", "text"),
        column("l_returnflag", "key", "text"),
        column("revenue", "estimate", "number"),
      ],
      MODES.slice(0, f < 0.1 ? 6 : 7).flatMap((mode, at) =>
        ["A", "N"].map((flag, other) => [
          mode,
          flag,
          estimate(2e9 + 6e8 * noise(7 * at + other) + 5e8, f, at + other, 3),
        ]),
      ),
    ),
  forecast: (f) => answer([column("revenue", "estimate", "number")], [[estimate(123141078.23, f, 3)]]),
  several: (f) =>
    answer(
      [
        column("avg_price", "estimate", "number"),
        column("discount", "estimate", "number"),
        column("largest", "bound", "number"),
      ],
      [
        [
          estimate(38255.14, f, 4),
          estimate(0.05, f, 5),
          f < 1 ? [104899.5, 104899.5, null, true] : [104949.5, 104949.5, 104949.5, true],
        ],
      ],
    ),
  monthly: (f) =>
    answer(
      [column("month", "key", "date"), column("revenue", "estimate", "number")],
      Array.from({ length: 84 }, (_, at) => {
        const truth = 2.6e8 + 4e7 * Math.sin(at / 9) + 9e5 * at + 1.4e7 * noise(at);
        return [
          `${1992 + Math.floor(at / 12)}-${String((at % 12) + 1).padStart(2, "0")}-01`,
          estimate(truth, f, at, 1.4, f > 0.02 || at % 5 > 0),
        ];
      }),
      { ranked: true },
    ),
  nations: (f) => {
    const rows = NATIONS.map((nation, at) => [
      nation,
      estimate((57 - 2 * at) * 1e6, f, at + 40, 1.5, at < 8 || f > 0.3),
    ]);
    rows.sort((a, b) => b[1][0] - a[1][0]);
    return answer([column("nation", "key", "text"), column("revenue", "estimate", "number")], rows, {
      ranked: true,
    });
  },
  scatter: (f) =>
    answer(
      [
        column("nation", "key", "text"),
        column("orders", "estimate", "number"),
        column("avg_price", "estimate", "number"),
      ],
      NATIONS.map((nation, at) => [
        nation,
        estimate(6e5 + 4e4 * noise(at), f, at, 0.7),
        estimate(15e4 + 9e3 * noise(at + 30), f, at + 9, 0.4),
      ]),
    ),
  histogram: (f) =>
    answer(
      [column("price", "key", "number"), column("orders", "estimate", "number")],
      Array.from({ length: 24 }, (_, at) => [
        at * 10_000,
        estimate(9e5 * Math.exp(-((at - 9) ** 2) / 40) + 4000, f, at, 2),
      ]),
    ),
  bounds: (f) =>
    answer(
      [column("priority", "key", "text"), column("dearest", "bound", "number")],
      ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"].map((name, at) => {
        const seen = 5e5 + 2e4 * at;
        return [name, f < 1 ? [seen, seen, at % 2 ? seen * 1.2 : null, true] : [seen, seen, seen, true]];
      }),
    ),
  nothing: () => answer([column("n", "estimate", "number")], []),
};

export function answerOf(settings, fraction, elapsed) {
  return MAKERS[settings.data](fraction, elapsed);
}
