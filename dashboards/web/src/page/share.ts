/** A page's state in its address, so that a link shows somebody else the same. No token is in it. Pure. */

import type { Order } from "../answer/order";
import type { Filter, Selection } from "../protocol";

/** What a link says. tables: panels that are viewed as a table. */
export interface Shared {
  readonly filters: readonly Omit<Filter, "id">[];
  readonly order: Order;
  readonly tables: readonly string[];
}

export const NOTHING: Shared = { filters: [], order: "place", tables: [] };

/** Return the part of an address after its #, or nothing where there is nothing to say. */
export function hashOf({ filters, order, tables }: Shared): string {
  const said = {
    ...(filters.length > 0 ? { filters: filters.map(sharedFilter) } : {}),
    ...(order === "value" ? { order } : {}),
    ...(tables.length > 0 ? { tables } : {}),
  };
  return Object.keys(said).length > 0 ? `#${encodeURIComponent(JSON.stringify(said))}` : "";
}

function sharedFilter({ panel, column, selection, table }: Omit<Filter, "id">): Record<string, unknown> {
  return { ...(table ? { table } : { panel }), column, ...selection };
}

/** Return what such a part says. What is no such thing says nothing: the server checks every value again. */
export function sharedIn(hash: string): Shared {
  try {
    const said = JSON.parse(decodeURIComponent(hash.replace(/^#/, ""))) as Record<string, unknown>;
    return {
      filters: listOf(said["filters"]).flatMap(filterOf),
      order: said["order"] === "value" ? "value" : "place",
      tables: listOf(said["tables"]).filter((each): each is string => typeof each === "string"),
    };
  } catch {
    return NOTHING;
  }
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function filterOf(value: unknown): Omit<Filter, "id">[] {
  if (typeof value !== "object" || value === null) return [];
  const { panel = "", column, values, range, table = null } = value as Record<string, unknown>;
  if (typeof panel !== "string" || typeof column !== "string") return [];
  const selection = Array.isArray(values) ? { values } : Array.isArray(range) ? { range } : null;
  if (selection === null) return [];
  const said = { panel, column, selection: selection as Selection };
  return typeof table === "string" ? [{ ...said, table }] : [said];
}
