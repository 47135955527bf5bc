/** An event of the tenant, or a gap in the stream of them. */
export interface TenantEvent {
  type: string;
  sandbox_id: string | null;
}

export const EVENTS_PATH = "v1/events";

/** The address of the tenant's events: new ones at first, then those behind the last. */
export function eventsUrl(root: string, after: string | null): string {
  return `${root}${EVENTS_PATH}?${after === null ? "tail=0" : `after=${after}`}`;
}
