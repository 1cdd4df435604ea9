/** The pages of the make-believe server. data: which answers a panel gets; still: it stays as it is. */

const MODES_SQL = `SELECT l_shipmode, l_returnflag, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem
WHERE l_returnflag IN ('A', 'N') -- neither returned
GROUP BY ALL`;
const NUMBER_SQL =
  "SELECT sum(l_extendedprice * l_discount) AS revenue\nFROM lineitem\nWHERE l_quantity < 24";

const bars = { data: "modes", chart: "bars", size: "wide", target: 0.01, priority: 1, sql: MODES_SQL };
const number = {
  data: "forecast",
  chart: "number",
  size: "small",
  target: 0.005,
  priority: 1,
  sql: NUMBER_SQL,
};
const line = {
  data: "monthly",
  chart: "line",
  size: "wide",
  target: 0.02,
  priority: 1,
  sql: "SELECT month, sum(revenue) FROM lineitem GROUP BY 1 ORDER BY 1",
};
const table = {
  data: "nations",
  chart: "table",
  size: "small",
  target: 0.02,
  priority: 1,
  sql: "SELECT nation, sum(revenue) AS revenue FROM lineitem GROUP BY 1 ORDER BY 2 DESC",
};
const scatter = {
  data: "scatter",
  chart: "scatter",
  size: "small",
  target: 0.01,
  priority: 2,
  sql: "SELECT 1",
};
const histogram = {
  data: "histogram",
  chart: "histogram",
  size: "small",
  target: 0.01,
  priority: 1,
  sql: "SELECT 1",
};
const bounds = { data: "bounds", chart: "bars", size: "small", target: null, priority: 1, sql: "SELECT 1" };

const FAILURE = {
  message: "there is no table lineitms",
  position: MODES_SQL.indexOf("lineitem"),
  candidates: ["lineitem"],
};

/** A panel of each kind of chart. */
export const KINDS = [bars, number, line, table, scatter, histogram];

export const PAGES = {
  live: {
    title: "TPC-H",
    panels: [
      { ...bars, id: "modes", title: "Revenue by ship mode and return flag" },
      { ...number, id: "forecast", title: "Forecast revenue change (Q6)", rate: 0.03 },
      { ...line, id: "monthly", title: "Monthly revenue" },
      { ...table, id: "nations", title: "Revenue by nation (Q5)" },
      { ...scatter, id: "scatter", title: "Orders and prices by nation" },
      { ...histogram, id: "prices", title: "Orders by price" },
      { ...bounds, id: "dearest", title: "Dearest order by priority" },
    ],
  },
  states: {
    title: "States",
    panels: [
      { ...bars, id: "waiting", title: "Waiting", state: "waiting" },
      { ...number, id: "refining", title: "Refining", fraction: 0.06, elapsed: 19, rate: 0.002 },
      {
        ...line,
        id: "met",
        title: "Target met, still refining",
        state: "target_met",
        fraction: 0.6,
        elapsed: 19,
        target: 0.05,
        still: true,
      },
      { ...table, id: "stopped", title: "Stopped by the user", state: "stopped", fraction: 0.2, elapsed: 12 },
      { ...bars, id: "paused", title: "Paused", state: "paused", fraction: 0.09, elapsed: 12, unseen: 2 },
      { ...number, data: "several", id: "exact", title: "Exact", state: "exact", fraction: 1, elapsed: 12 },
      {
        ...bars,
        id: "failed",
        title: "Failed",
        state: "failed",
        fraction: 0.1,
        elapsed: 12,
        failure: FAILURE,
      },
      { ...number, data: "nothing", id: "empty", title: "Empty", state: "empty", fraction: 1, elapsed: 12 },
      {
        ...bars,
        id: "broken",
        title: "Failed before the first estimate",
        state: "failed",
        fraction: 0,
        failure: FAILURE,
        size: "small",
        bare: true,
      },
      {
        ...table,
        data: "modes",
        id: "warned",
        title: "With warnings",
        fraction: 0.15,
        still: true,
        warnings: ["median(x) has no estimate here: it comes exact, at the end"],
      },
      { ...number, id: "early", title: "Not yet bounded", fraction: 0, still: true },
    ],
  },
  many: {
    title: "Twenty-four panels",
    panels: Array.from({ length: 24 }, (_, at) => ({
      ...KINDS[at % KINDS.length],
      size: "small",
      id: `p${at}`,
      title: `Panel ${at + 1}`,
      rate: 0.004,
    })),
  },
};
