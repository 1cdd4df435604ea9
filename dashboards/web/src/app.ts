/** The door of the web app: which page this is stands in the HTML the server sent. */

import { PageView } from "./page/page";
import { chosenTheme, wearTheme } from "./page/storage";

wearTheme(chosenTheme());
const root = document.getElementById("app");
if (root) new PageView(root, root.dataset["page"] ?? "", root.dataset["view"] === "jobs" ? "jobs" : "page");
