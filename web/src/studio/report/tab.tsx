// The Summary tab of a report: facts, numbers, alerts, modules, the config, and what was left out.
import { byCause } from "../faults/alert_order";
import type { AlertSeen, NumberSummary, ReportCame } from "../messages";
import { useValue, type Store } from "../store";

const MAX_ALERTS = 30;

/** The tab; nothing where a server answers. */
export function SummaryTab({ store }: { store: Store }) {
  const report = useValue(store.report);
  const alerts = useValue(store.alerts);
  const title = useValue(store.hello)?.title;
  if (!report) return null;
  return (
    <article class="report" aria-label="Summary">
      <h2>{title}</h2>
      <Facts facts={report.facts} />
      <LeftOut sentences={report.left_out} />
      <Numbers numbers={report.numbers} by={report.numbers_by.toLowerCase()} />
      <Alerts alerts={alerts} />
      <Modules rows={report.modules} />
      <Config text={report.config} />
    </article>
  );
}

function Facts({ facts }: { facts: ReportCame["facts"] }) {
  return (
    <dl class="report-facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function LeftOut({ sentences }: { sentences: string[] }) {
  if (!sentences.length) return null;
  return (
    <section class="report-left-out">
      <h3>Not in this report</h3>
      <ul>
        {sentences.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </section>
  );
}

function Numbers({ numbers, by }: { numbers: NumberSummary[]; by: string }) {
  if (!numbers.length) return null;
  return (
    <section>
      <h3>Numbers</h3>
      <div class="report-scroll">
        <table>
          <thead>
            <tr>
              <th scope="col" />
              <th scope="col">First</th>
              <th scope="col">Last</th>
              <th scope="col">Min</th>
              <th scope="col">Max</th>
            </tr>
          </thead>
          <tbody>
            {numbers.map(({ name, first, last, minimum, minimum_at, maximum, maximum_at }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{format(first)}</td>
                <td>{format(last)}</td>
                <td>
                  {format(minimum)}{" "}
                  <span class="soft">
                    {by} {minimum_at}
                  </span>
                </td>
                <td>
                  {format(maximum)}{" "}
                  <span class="soft">
                    {by} {maximum_at}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Alerts({ alerts }: { alerts: AlertSeen[] }) {
  if (!alerts.length) return null;
  return (
    <section>
      <h3>Alerts</h3>
      <ul class="report-alerts">
        {byCause(alerts)
          .slice(0, MAX_ALERTS)
          .map((alert, place) => (
            <li key={place} class={alert.follows ? "consequence" : ""}>
              <span class="soft">step {alert.step}</span> {alert.text}
            </li>
          ))}
      </ul>
      {alerts.length > MAX_ALERTS && <p class="soft">and {alerts.length - MAX_ALERTS} more: the bell lists them.</p>}
    </section>
  );
}

function Modules({ rows: [head, ...rows] }: { rows: string[][] }) {
  if (!rows.length) return null;
  return (
    <section>
      <h3>Modules</h3>
      <div class="report-scroll tall">
        <table>
          <thead>
            <tr>
              {head.map((name) => (
                <th key={name} scope="col" class={name === "Type" ? "text" : ""}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, ...cells], place) => (
              <tr key={place}>
                <th scope="row">{name}</th>
                {cells.map((cell, column) => (
                  <td key={column} class={head[column + 1] === "Type" ? "text" : ""}>
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Config({ text }: { text: string }) {
  if (!text) return null;
  return (
    <details>
      <summary>Config</summary>
      <pre class="report-scroll tall">{text}</pre>
    </details>
  );
}

function format(value: number | null): string {
  return value === null ? "not finite" : String(Number(value.toPrecision(5)));
}
